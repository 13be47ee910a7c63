"""Shows what is inside a store or a file of any of the formats: a value, as text and as JSON.

``dispatch`` recognises the format; each other module shows one of them.
"""
