"""Attempts to get a wrong row, a leaked key or a lost file out of Skipstone.

A test belongs here if somebody thought of a way to break one of the three promises, and tried it:
predicates at the edges of types (NaN, both zeros, casts, unsigned, decimals), files that lie about
themselves, settings of a session that change what values mean, keys and places of encrypted files,
writers that are killed. Each test states the attack and asserts what a user sees: the rows of the
oracle, or an error with its place. A test of what one module does belongs to the package of that
module; a promise that a user would try by hand belongs to `tests/accept`.
"""
