"""The stories: a hero with a thing sets out with a wish, meets a trouble, finds a friend, arrives.

The notation is explained in `notation.py`, the slots stand in `words.py`. What a story says about
its hero, name, thing, color, home, goal, trouble and friend at one place it repeats at another.
"""

from __future__ import annotations

from typing import Final

from training.storyteller.grammar import Grammar
from training.storyteller.words import SLOTS

SYSTEM: Final = (
    "You are a storyteller. You tell short stories: somebody has a wish, meets a trouble, finds a "
    "friend and comes to a good end."
)

# A request and the story that it gets; both are one text, as they share hero and thing.
_REQUESTS: Final = {
    "exchange": "[<ask>\n\n<story>|<please>\n\n<story>|<question>\n\n<story>"
    "|Continue this story: <opening>\n\n<rest>|<story>]",
    "ask": "[Tell [a story|me a story|another story]|Write [a story|a short story]|Make up a story"
    "|I want [a story|to hear a story]] about <topic>",
    "please": "[Please [tell|write] a story about <topic>|One more story, please."
    "|A story, please.]",
    "question": "[Can you tell|Do you know|May I hear] [a story|another story] about "
    "[{a kind}[?| and {a thing}?]|{name}[?| the {kind}?]]",
    "topic": "[{a kind}<more>|{a thing}[.| and {a kind}.]|{name}[.| and {a thing}.| the {kind}.]]",
    "more": "[.| and [{a thing}|{a helper}].| named {name}.| with {a thing}."
    "| who goes to the {goal}.]",
}

_STORY: Final = {
    "story": "<opening> <rest>",
    "opening": "[Once upon a time|Long, long ago|Many years ago|In a faraway land|One spring"
    "|One winter] there [lived|was] [a brave|a clever|a gentle|a lonely|a merry|a shy|a small"
    "|a young|an old] {kind} [named|called] {name}.",
    "rest": "<home> <wish> <departure> <trouble> <thanks> <ending>",
    "home": "{He} lived [behind|beside|near|next to] {a home} and [kept|loved|owned|took care of] "
    "a {color} {thing}.",
    "wish": "{He} [hoped|longed|planned|wanted|wished] to {do} the {thing} to {his} {person}, who "
    "lived [behind|beside|near|next to] the {goal}.",
    "departure": "[Early one|Late one|One] [bright|cold|foggy|quiet|rainy|sunny|warm|windy] "
    "[afternoon|evening|morning] {name} [packed|picked up|took] the {color} {thing} and "
    "[hurried|ran|walked|went] [along the road|down the hill|over the fields|through the woods"
    "|up the valley].",
    "thanks": "{name} thanked the {helper} [again and again|many times|with a cake|with a hug"
    "|with a song]. [At last|Now|Once more] {he} could {do} the {thing} to {his} {person}.",
    "ending": "[At sunset|Before dark|That night|The next day|Two days later] {he} [came to|found"
    "|reached] the {goal} and {did} the {color} {thing} to {his} {person}. [After that day"
    "|Ever after|From then on] {name} and the {helper} were [best|close|good|true] friends and "
    "[always|often|sometimes] [danced|played|sang|talked] near the {home}.",
}

_TROUBLE: Final = {
    "trouble": "[After a while|All at once|Before long|Soon|Suddenly] "
    "[<wind>|<fall>|<theft>|<barrier>|<weather>|<drop>]",
    "wind": "the wind [blew|carried|lifted|pulled] the {thing} into a {tree}. <meeting> "
    '"My {color} {thing} [hangs|is caught|is stuck] in the {tree},<offer> '
    "<both> [climbed|pulled|shook] the {tree} and [caught|freed|got] the {thing}.",
    "fall": "{he} fell over a [root|stick|stone], and the {thing} [fell|flew|rolled] into a "
    '{water}. <meeting> "My {color} {thing} [floats|is|lies] in the {water},<offer> '
    "<both> [built|found|made|took] a [boat|net|raft] and [fished|lifted|pulled] the {thing} out "
    "of the {water}.",
    "theft": "{he} met a {thief}, who [grabbed|stole|took] the {thing}. <meeting> "
    '"A {thief} [grabbed|stole|took] my {thing},<offer> '
    "<both> [chased|followed|found] the {thief} and [brought|got|took] the {thing} back.",
    "barrier": "the road was [blocked|closed] by a [big|heavy|huge|wide] {block}. <meeting> "
    '"The {block} [is in my way|is too heavy|will not move],<offer> '
    "<both> [lifted|pulled|pushed|rolled] the {block} [aside|away|into the grass].",
    "weather": "thick {veil} [came down|came up|hid the road]. <meeting> "
    '"I [am lost in|cannot see in|do not like] the {veil},<offer> '
    "<both> [hurried|walked|went] through the {veil} and found the [path|road|way] again.",
    "drop": "the {thing} [fell|flew|rolled] into a {hole}. <meeting> "
    '"My {color} {thing} [is lost|is stuck|lies] in the {hole},<offer> '
    "<both> [brought|found|made|took] a [ladder|rope|stick] and [lifted|pulled|rolled] the {thing} "
    "out of the {hole}.",
    "meeting": "{name} [cried|sat down|sighed|stood still|wept]. [Just then|Luckily|Then] "
    "[a friendly|a gentle|a kind|a wise|an old] {helper} [came along|came by|stopped] and asked, "
    '"[What is the matter|What is wrong|What happened|Why are you sad], [dear|little|poor] '
    '{kind}?"',
    "offer": '" [answered|cried|said] {name}. "[Be brave|Do not cry|Do not worry|I will help you'
    '|Leave it to me|We can do it]," said the {helper}.',
    "both": "[Together they|Side by side they|The {helper} and the {kind}|{name} and the {helper}]",
}

GRAMMAR: Final = Grammar({**_REQUESTS, **_STORY, **_TROUBLE}, SLOTS)
