"""Everyday event sequences: each script is a list of steps in order, with slots filled once per story.

{n} is the person's name, {s} "she" or "he", {h} "her" or "his"; {x} and {y} are the script's own slots. {x} and {y}
return in later steps, so the right ending has to agree with what the story said.
"""

from typing import NamedTuple


class Script(NamedTuple):
    steps: tuple[str, ...]
    x: tuple[str, ...]
    y: tuple[str, ...]


def script(steps: str, x: str, y: str) -> Script:
    return Script(tuple(steps.split("|")), tuple(x.split(",")), tuple(y.split(",")))


FRUIT = "apple,pear,plum,cherry,peach,berry,lemon,fig"
COLOUR = "red,blue,green,white,black,yellow,brown,grey"
RELATIVE = "mother,father,sister,brother,aunt,uncle,cousin,friend"
DAY = "on Monday,on Tuesday,on Friday,on Sunday,at noon,at dawn,in spring,in autumn"

SCRIPTS = (
    script("{n} wanted to bake {x} bread {y}.|{s} measured the flour for the {x} bread.|{s} mixed the flour with water.|{s} kneaded the dough.|{s} let the dough rise.|{s} put the {x} bread in the oven.|{s} took the {x} bread out and let it cool.", "rye,wheat,corn,oat,nut,garlic,olive,raisin", DAY),
    script("{n} decided to wash the {x} car of {h} {y}.|{s} filled a bucket with water.|{s} added soap to the bucket.|{s} scrubbed the {x} car.|{s} rinsed the soap off.|{s} dried the {x} car with a cloth.|{s} gave the keys back to {h} {y}.", COLOUR, RELATIVE),
    script("{n} sat down to write to {h} {y}.|{s} took a {x} pen.|{s} wrote two pages with the {x} pen.|{s} folded the letter.|{s} put the letter in an envelope.|{s} stuck a stamp on the envelope.|{s} posted the letter to {h} {y}.", COLOUR, RELATIVE),
    script("{n} bought {x} seeds {y}.|{s} dug a small hole.|{s} dropped the {x} seeds into the hole.|{s} covered the {x} seeds with soil.|{s} watered the soil.|{s} waited for weeks.|{s} saw the first {x} sprout.", "bean,pea,tomato,carrot,pumpkin,sunflower,radish,melon", DAY),
    script("{n} wanted to paint the {x} {y}.|{s} opened a can of {y} paint.|{s} stirred the {y} paint.|{s} dipped the brush in the paint.|{s} painted the {x}.|{s} let the {x} dry.|{s} cleaned the brush.", "fence,door,chair,wall,gate,table,bench,shelf", COLOUR),
    script("{n} went to the station to visit {h} {y}.|{s} bought a ticket to the {x}.|{s} waited on the platform.|{s} got on the train to the {x}.|{s} showed the ticket on the train.|{s} got off at the {x}.|{s} hugged {h} {y}.", "coast,city,lake,valley,village,harbour,island,mountains", RELATIVE),
    script("{n} had a flat tyre on the {x} bike {y}.|{s} took the wheel off the {x} bike.|{s} pulled out the tube.|{s} found the hole in the tube.|{s} glued a patch on the hole.|{s} put the wheel back on the {x} bike.|{s} rode the {x} bike home.", COLOUR, DAY),
    script("{n} made tea for {h} {y}.|{s} boiled water.|{s} put {x} tea in the pot.|{s} poured the water on the {x} tea.|{s} waited five minutes.|{s} filled two cups with {x} tea.|{s} gave one cup to {h} {y}.", "mint,black,green,lemon,ginger,rose,apple,plum", RELATIVE),
    script("{n} went to the library {y}.|{s} looked for a book about {x}.|{s} found the book about {x}.|{s} took the book to the desk.|{s} borrowed the book.|{s} read about {x} at home.|{s} brought the book back.", "whales,stars,trains,birds,castles,rocks,ships,bees", DAY),
    script("{n} planned a party for {h} {y}.|{s} sent invitations.|{s} bought {x} balloons.|{s} hung up the {x} balloons.|{s} lit the candles on the cake.|{s} sang for {h} {y}.|{s} cut the cake.", COLOUR, RELATIVE),
    script("{n} took the {x} dog of {h} {y} for a walk.|{s} put the leash on the dog.|{s} walked the {x} dog to the park.|{s} threw a stick.|{s} waited until the {x} dog brought the stick.|{s} walked home.|{s} gave the {x} dog some water.", COLOUR, RELATIVE),
    script("{n} wanted {x} jam {y}.|{s} picked a basket of fruit for the {x} jam.|{s} washed the fruit.|{s} cooked the fruit with sugar.|{s} stirred the {x} jam.|{s} filled the {x} jam into jars.|{s} closed the lids.", FRUIT, DAY),
    script("{n} went fishing with {h} {y}.|{s} put a worm on the hook.|{s} threw the line into the {x}.|{s} watched the float on the {x}.|{s} felt a pull on the line.|{s} reeled in a fish from the {x}.|{s} fried the fish for {h} {y}.", "lake,river,pond,sea,bay,canal,stream,harbour", RELATIVE),
    script("{n} lost a button of the {x} coat {y}.|{s} found a needle.|{s} put thread through the needle.|{s} sewed the button on the {x} coat.|{s} cut the thread.|{s} put on the {x} coat.|{s} went out in the {x} coat.", COLOUR, DAY),
    script("{n} did the laundry {y}.|{s} sorted the clothes.|{s} put the {x} shirts into the machine.|{s} added soap powder.|{s} started the machine.|{s} hung the {x} shirts on the line.|{s} folded the dry {x} shirts.", COLOUR, DAY),
    script("{n} went camping by the {x} with {h} {y}.|{s} found a flat place near the {x}.|{s} put up the tent.|{s} gathered dry wood.|{s} made a fire.|{s} cooked soup for {h} {y}.|{s} fell asleep by the {x}.", "lake,river,forest,cliff,beach,meadow,hill,canyon", RELATIVE),
    script("{n} took a photo of the {x} for {h} {y}.|{s} put a film in the camera.|{s} pointed the camera at the {x}.|{s} pressed the button.|{s} had the film developed.|{s} framed the picture of the {x}.|{s} gave the picture to {h} {y}.", "tower,bridge,castle,church,market,garden,statue,harbour", RELATIVE),
    script("{n} wanted to see a film about {x} {y}.|{s} stood in line at the cinema.|{s} paid for the ticket.|{s} bought popcorn.|{s} found a seat in the dark.|{s} watched the film about {x}.|{s} talked about {x} all the way home.", "pirates,robots,ghosts,dragons,spies,wolves,kings,sailors", DAY),
    script("{n} built a {x} for {h} {y}.|{s} drew a plan of the {x}.|{s} sawed the boards.|{s} nailed the boards together.|{s} sanded the {x}.|{s} oiled the {x}.|{s} carried the {x} to {h} {y}.", "table,shelf,stool,bench,chest,cradle,box,desk", RELATIVE),
    script("{n} made a salad with {x} {y}.|{s} washed the {x}.|{s} cut the {x} on a board.|{s} put the {x} in a bowl.|{s} added oil and salt.|{s} mixed the salad.|{s} ate the salad.", "tomatoes,carrots,cucumbers,beets,onions,peppers,radishes,olives", DAY),
    script("{n} had a sore {x} {y}.|{s} called the doctor about the {x}.|{s} drove to the clinic.|{s} sat in the waiting room.|{s} showed the doctor the {x}.|{s} got a cream for the {x}.|{s} felt better.", "knee,foot,hand,elbow,shoulder,thumb,ankle,wrist", DAY),
    script("{n} learned a song on the {x} for {h} {y}.|{s} tuned the {x}.|{s} read the notes.|{s} practised the {x} every day.|{s} invited {h} {y}.|{s} played the song on the {x}.|{s} bowed to {h} {y}.", "guitar,violin,harp,cello,lute,banjo,piano,flute", RELATIVE),
    script("{n} knitted a {x} scarf for {h} {y}.|{s} chose {x} wool.|{s} cast on forty stitches.|{s} knitted row after row of {x} wool.|{s} bound off the last row.|{s} wrapped the {x} scarf in paper.|{s} gave the {x} scarf to {h} {y}.", COLOUR, RELATIVE),
    script("{n} cleaned the {x} {y}.|{s} opened the windows of the {x}.|{s} swept the floor of the {x}.|{s} mopped the floor.|{s} emptied the bucket.|{s} wiped the windows of the {x}.|{s} closed the door of the {x}.", "kitchen,attic,cellar,garage,office,hall,shop,studio", DAY),
)  # fmt: skip
