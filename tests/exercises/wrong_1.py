"""Wrong solutions of chapter 1, and a word that the counterexample must say."""


def _slab(asked):
    return 1 << max(asked - 1, 0).bit_length()


def always_the_next_power(asked, num_tokens, final_tokens):
    slab = 1 << asked.bit_length()  # 4 becomes 8
    return final_tokens - num_tokens, asked - final_tokens, slab - asked


def no_rounding(asked, num_tokens, final_tokens):
    return final_tokens - num_tokens, asked - final_tokens, 0


def rounding_is_internal(asked, num_tokens, final_tokens):
    return final_tokens - num_tokens, _slab(asked) - final_tokens, 0


def all_empty_is_internal(asked, num_tokens, final_tokens):
    return 0, asked - num_tokens, _slab(asked) - asked


def last_token_needs_no_slot(asked, num_tokens, final_tokens):
    return max(final_tokens - num_tokens - 1, 0), asked - final_tokens, _slab(asked) - asked


def the_wrong_order(asked, num_tokens, final_tokens):
    return asked - final_tokens, final_tokens - num_tokens, _slab(asked) - asked


def one_number(asked, num_tokens, final_tokens):
    return _slab(asked) - num_tokens


def no_return(asked, num_tokens, final_tokens):
    final_tokens - num_tokens, asked - final_tokens, _slab(asked) - asked


WRONG = {
    "1.1": {
        "a power of two is rounded up, too": (always_the_next_power, "the slab has 1,"),
        "the slab is as long as asked": (no_rounding, "nobody can use"),
        "what lies beyond counts as internal": (rounding_is_internal, "no token ever comes"),
        "all that is empty counts as internal": (all_empty_is_internal, "will hold a token later"),
        "one token fewer will come": (last_token_needs_no_slot, "reserved is 1, not 0"),
        "internal stands first": (the_wrong_order, "will hold a token later"),
        "one number in all": (one_number, "three numbers"),
        "the return is forgotten": (no_return, "without a return"),
    },
}
