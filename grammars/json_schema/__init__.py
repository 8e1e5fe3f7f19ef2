"""JSON Schema to a lazily built automaton with a stack.

    constraint = compile_json_schema(schema, JsonOptions(whitespace=Whitespace.COMPACT))   # needs no vocabulary
    constraint.unenforced                                   # keywords that best effort left out, with JSON pointers
    grammar = constraint.bind(TokenTrie.of(vocabulary))     # grammars.protocol.Grammar; one trie per vocabulary
    matcher = grammar.matcher()

`compile_json_schema` and `compile_json_object` (grammars.json_schema.compile), `compile_regex` and `compile_choices`
(grammars.matching.compile) return a `CompiledConstraint` (grammars.matching.constraint): small, picklable, without
vocabulary or caches, so that it can be made in a process that may be killed and be bound where the engine runs.

Invariant: a text that a matcher completes is valid under the schema, keywords listed in `unenforced` aside.
"""
