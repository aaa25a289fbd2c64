"""Questions in Chinese with four options: sums, weekdays, orderings, kinds of things, measure words, opposites, kin."""

from lab.zoo.skills.common import Dice, Item, item_skill, with_distractors

CUE = "\n答："
PEOPLE = [
    "小明",
    "小红",
    "小丽",
    "小刚",
    "小华",
    "小军",
    "小芳",
    "小美",
    "小强",
    "小玲",
    "小东",
    "小云",
    "阿杰",
    "阿珍",
    "阿宝",
    "阿兰",
    "王强",
    "李娜",
    "张伟",
    "刘洋",
    "陈静",
    "赵敏",
    "周涛",
    "吴磊",
]
DIGITS = "零一二三四五六七八九"
DAYS = "一二三四五六日"
COUNTED = [
    "苹果",
    "梨",
    "橘子",
    "桃子",
    "鸡蛋",
    "糖",
    "书",
    "铅笔",
    "球",
    "邮票",
    "气球",
    "杯子",
    "石头",
    "贝壳",
    "卡片",
    "硬币",
    "包子",
    "饼干",
    "玩具",
    "花",
]
COMPARE = (("高", "矮"), ("重", "轻"), ("快", "慢"), ("大", "小"), ("胖", "瘦"))
KINDS_OF_THINGS = {
    "动物": ["老虎", "狮子", "大象", "猴子", "兔子", "马", "牛", "羊", "狗", "猫", "狐狸", "熊", "鹿", "狼", "老鼠"],
    "水果": ["苹果", "香蕉", "葡萄", "西瓜", "橘子", "桃子", "梨", "草莓", "樱桃", "芒果", "柠檬", "菠萝"],
    "蔬菜": ["白菜", "萝卜", "土豆", "黄瓜", "茄子", "菠菜", "芹菜", "南瓜", "豆角", "洋葱"],
    "家具": ["桌子", "椅子", "沙发", "床", "柜子", "书架", "衣柜", "凳子", "茶几"],
    "交通工具": ["汽车", "火车", "飞机", "轮船", "自行车", "公共汽车", "摩托车", "地铁", "卡车"],
    "衣服": ["衬衫", "裤子", "裙子", "外套", "毛衣", "大衣", "背心", "短裤", "雨衣"],
    "文具": ["铅笔", "钢笔", "橡皮", "尺子", "本子", "毛笔", "墨水", "圆规", "胶水"],
    "乐器": ["钢琴", "小提琴", "笛子", "吉他", "鼓", "二胡", "琵琶", "古筝", "喇叭"],
    "颜色": ["红色", "黄色", "蓝色", "绿色", "白色", "黑色", "紫色", "灰色", "粉色"],
    "餐具": ["筷子", "勺子", "碗", "盘子", "叉子", "茶杯", "汤匙", "碟子"],
}
MEASURES = {
    "本": ["书", "词典", "杂志", "日记"],
    "匹": ["马", "布"],
    "条": ["鱼", "河", "路", "裤子", "蛇", "毛巾"],
    "张": ["纸", "桌子", "床", "照片", "票", "地图"],
    "只": ["鸟", "猫", "鸡", "兔子", "鸭子", "老鼠"],
    "头": ["牛", "猪", "驴"],
    "辆": ["汽车", "自行车", "卡车", "摩托车"],
    "把": ["刀", "椅子", "伞", "钥匙", "剪刀"],
    "朵": ["云", "白云", "浪花"],
    "棵": ["树", "草", "白菜", "松树"],
    "座": ["山", "桥", "楼", "塔", "城市"],
    "件": ["衬衫", "外套", "毛衣", "礼物"],
    "支": ["铅笔", "钢笔", "毛笔", "歌"],
}
OPPOSITES = [
    tuple(pair)
    for pair in [
        "大小",
        "多少",
        "长短",
        "高低",
        "快慢",
        "冷热",
        "新旧",
        "好坏",
        "左右",
        "上下",
        "前后",
        "里外",
        "早晚",
        "远近",
        "轻重",
        "胖瘦",
        "黑白",
        "真假",
        "开关",
        "进出",
        "买卖",
        "来去",
        "哭笑",
        "强弱",
        "深浅",
        "粗细",
        "软硬",
        "干湿",
        "甜苦",
        "生死",
    ]
]
KIN = (
    ("爸爸的爸爸", "爷爷"), ("爸爸的妈妈", "奶奶"), ("妈妈的爸爸", "外公"), ("妈妈的妈妈", "外婆"), ("爸爸的弟弟", "叔叔"),
    ("爸爸的哥哥", "伯伯"), ("爸爸的妹妹", "姑姑"), ("妈妈的妹妹", "姨妈"), ("妈妈的弟弟", "舅舅"), ("妈妈的哥哥", "舅舅"),
    ("儿子的儿子", "孙子"), ("儿子的女儿", "孙女"), ("哥哥的妈妈", "妈妈"), ("妹妹的爸爸", "爸爸"),
)  # fmt: skip


def numeral(n: int) -> str:
    """A number from 0 to 999 in Chinese numerals."""
    if n < 10:
        return DIGITS[n]
    if n < 100:
        tens, ones = divmod(n, 10)
        return ("" if tens == 1 else DIGITS[tens]) + "十" + (DIGITS[ones] if ones else "")
    hundreds, rest = divmod(n, 100)
    tail = (
        ""
        if not rest
        else "零" + DIGITS[rest]
        if rest < 10
        else DIGITS[rest // 10] + "十" + (DIGITS[rest % 10] if rest % 10 else "")
    )
    return DIGITS[hundreds] + "百" + tail


def item(dice: Dice, prompt: str, answer: str, wrong: list[str]) -> Item:
    return Item(prompt, f"问：{prompt}", "", CUE, answer, with_distractors(dice, answer, wrong))


def sums(dice: Dice) -> Item:
    top = dice.pick((10, 10, 20, 50))
    x, y = dice.between(1, top), dice.between(1, top)
    if dice.random() < 0.5:
        x, y = max(x, y), min(x, y)
        result, forms = (
            x - y,
            ("{x}减{y}等于几？", "{n}有{x}个{o}，给了{m}{y}个，还剩几个？", "{n}有{x}个{o}，吃掉{y}个，剩下几个？"),
        )
    else:
        result, forms = (
            x + y,
            (
                "{x}加{y}等于几？",
                "{n}有{x}个{o}，{m}又给{n}{y}个，一共几个？",
                "{n}有{x}个{o}，又买了{y}个，现在有几个？",
            ),
        )
    name, other = dice.sample(PEOPLE, 2)
    prompt = dice.pick(forms).replace("{x}", numeral(x)).replace("{y}", numeral(y)).replace("{n}", name)
    prompt = prompt.replace("{m}", other).replace("{o}", dice.pick(COUNTED))
    close_results = [result + d for d in (-10, -3, -2, -1, 1, 2, 3, 10) if result + d >= 0]
    return item(dice, prompt, numeral(result), [numeral(n) for n in dice.sample(close_results, 3)])


def weekdays(dice: Dice) -> Item:
    start, days = dice.between(0, 6), dice.pick((1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    back = dice.random() < 0.4
    result = (start - days if back else start + days) % 7
    name = dice.pick(PEOPLE)
    form = dice.pick(
        ("今天是星期{a}，{k}是星期几？", "{n}在星期{a}出门，{k}是星期几？", "{n}的生日是星期{a}，{k}是星期几？")
    )
    shift = f"{numeral(days)}天前" if back else f"{numeral(days)}天后"
    prompt = form.replace("{a}", DAYS[start]).replace("{k}", shift).replace("{n}", name)
    wrong = dice.sample([d for d in DAYS if d != DAYS[result]], 3)
    return item(dice, prompt, f"星期{DAYS[result]}", [f"星期{d}" for d in wrong])


def ordering(dice: Dice) -> Item:
    people = dice.sample(PEOPLE, 4)
    more, less = dice.pick(COMPARE)
    clues = [
        f"{b}比{a}{less}" if dice.random() < 0.5 else f"{a}比{b}{more}"
        for a, b in zip(people, people[1:], strict=False)
    ]
    dice.shuffle(clues)
    top = dice.random() < 0.5
    answer = people[0] if top else people[-1]
    prompt = f"{'，'.join(clues)}，谁最{more if top else less}？"
    return item(dice, prompt, answer, [p for p in people if p != answer])


def kinds(dice: Dice) -> Item:
    """Which of four things is of a kind: the things differ in kind, so exactly one is."""
    names = dice.sample(tuple(KINDS_OF_THINGS), 4)
    shown = [dice.pick(KINDS_OF_THINGS[name]) for name in names]
    asked = dice.between(0, 3)
    form = dice.pick(("{l}，哪一个是{k}？", "在{l}当中，属于{k}的是哪个？", "{n}看到{l}，哪个是{k}？"))
    prompt = form.replace("{l}", "、".join(shown)).replace("{k}", names[asked]).replace("{n}", dice.pick(PEOPLE))
    return item(dice, prompt, shown[asked], [t for i, t in enumerate(shown) if i != asked])


def measures(dice: Dice) -> Item:
    measure = dice.pick(tuple(MEASURES))
    form = dice.pick(("{n}有{x}什么{o}？填量词。", "“{x}（）{o}”，括号里填什么？", "{n}看见{x}（）{o}，填哪个量词？"))
    prompt = form.replace("{x}", numeral(dice.between(1, 20))).replace("{o}", dice.pick(MEASURES[measure]))
    wrong = dice.sample([m for m in MEASURES if m != measure], 3)
    return item(dice, prompt.replace("{n}", dice.pick(PEOPLE)), measure, wrong)


def opposites(dice: Dice) -> Item:
    pair = dice.pick(OPPOSITES)
    word, answer = pair if dice.random() < 0.5 else pair[::-1]
    form = dice.pick(
        ("{n}问：“{w}”的反义词是什么？", "{n}写了“{w}”，它的反义词是哪个字？", "{n}说“{w}”，{m}要说相反的字，说什么？")
    )
    name, other = dice.sample(PEOPLE, 2)
    prompt = form.replace("{w}", word).replace("{n}", name).replace("{m}", other)
    wrong = dice.sample([w for p in OPPOSITES if p != pair for w in p if w not in pair], 3)
    return item(dice, prompt, answer, wrong)


def kin(dice: Dice) -> Item:
    path, answer = dice.pick(KIN)
    form = dice.pick(("{n}的{p}是{n}的什么人？", "{n}应该叫{p}什么？", "{n}给{m}介绍自己的{p}，这是{n}的什么人？"))
    name, other = dice.sample(PEOPLE, 2)
    prompt = form.replace("{p}", path).replace("{n}", name).replace("{m}", other)
    others = sorted({a for _, a in KIN if a != answer})
    return item(dice, prompt, answer, dice.sample(others, 3))


FORMS = (sums, sums, sums, weekdays, ordering, ordering, kinds, kinds, measures, opposites, kin)


def draw(dice: Dice) -> Item:
    return dice.pick(FORMS)(dice)


SKILL = item_skill("chinese", draw, scoring="choice", chance=0.25)
