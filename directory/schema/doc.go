// Package schema judges JSON values by JSON Schema 2020-12, with a budget.
//
// Schemas and values come from strangers, and a short schema can demand an
// exponential amount of work. So every judgement counts its steps: each
// application of a schema to a value, each comparison and each byte that a pattern
// reads. When the budget is spent, the judgement ends with ErrBudget. Memory is
// bounded by the size of the value, because a judgement ends at the first
// violations that the caller asks for and keeps nothing of the alternatives that
// failed.
//
// The whole of 2020-12 is implemented: the vocabularies core, applicator,
// validation and unevaluated; format and content are annotations, as the
// specification has it by default. Schemas that name draft-04, -06, -07 or 2019-09
// are read with those drafts' keywords. Nothing is fetched: a reference leads to a
// part of its own schema or to the metaschema of 2020-12, which is built in.
//
// A schema passes two stages:
//
//   - Compile reads the schema once (compile.go), resolves references (refs.go) and
//     refuses keywords of a wrong type with the place as a JSON pointer.
//   - Schema.Validate reads the value into a flat tree (value.go) and applies the
//     schema to it (evaluate.go).
package schema
