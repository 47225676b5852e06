// Package policy decides by Cedar policies which actions identities may take and which
// registrations peers may receive. It denies by default, and a forbid wins.
//
// A [Policy] holds the set of policies in force for one domain. It starts with one
// of the two built-in sets, and [Policy.Set] replaces it when the domain agrees on
// another:
//
//	p, err := policy.New("shipped", domain)
//	decision := p.Register(caller, agent, projection, visibility)
//	err = p.Set(text, revision)
//
// Each question is a Cedar action: register, read, invoke, export, operate,
// commission and on-behalf-of. A [directory.Decision] names the policies that
// decided, and which members of a registration the caller may see.
//
// # Cost of a decision
//
// A set is divided when it is parsed: by question, then by the principal in a
// policy's head, then by the conditions that depend on the principal alone. A
// decision evaluates only policies that can apply to its question and principal.
// Decisions are cached by the attributes that the policies read. All caches are
// bounded, and are dropped when another set comes into force.
//
// A [Case] is a question with its expected answer, for tests of a policy before it
// is published.
//
// # Files
//
//	policy                 the questions, and the change of the set in force
//	active                 the set in force: views, cached decisions, entities
//	set                    parsing, and the division by question and principal
//	cases                  questions with expected answers
//	shipped.cedar, development.cedar
//	                       the built-in sets
//	vocabulary.txt         what policies are about, for operators
package policy
