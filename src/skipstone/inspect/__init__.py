"""Shows the content of a store or a file of any of the formats, as text and as JSON.

``dispatch`` recognises the format; each other module inspects one of them.
"""
