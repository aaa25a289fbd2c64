"""Which training run is better, and is a difference of scores more than noise?"""
