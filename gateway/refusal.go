package gateway

import (
	"errors"
	"fmt"
)

// A Rule is one of the guard's, by name.
type Rule string

// The rules.
const (
	RuleScheme      Rule = "scheme"      // https alone
	RulePort        Rule = "port"        // the ports that are open
	RuleAddress     Rule = "address"     // public addresses, and those on the allow-list
	RuleRedirect    Rule = "redirect"    // none that leaves the authority, none for an invocation
	RuleCertificate Rule = "certificate" // one that holds, for the host or of the registrant's domain
	RuleIdentity    Rule = "identity"    // an agent that speaks mTLS is its registrant
	RuleSize        Rule = "size"        // of an answer
	RuleTime        Rule = "time"        // that an exchange may take
)

// A Refusal is the guard's no. Rules scheme, port, address and redirect say that
// nothing was sent there; certificate and identity that no request was.
type Refusal struct {
	Rule   Rule
	Detail string // for the operator: it may name addresses that a client must not learn
	Err    error
}

func (r *Refusal) Error() string { return fmt.Sprintf("the guard's rule %q: %s", r.Rule, r.Detail) }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// RuleOf returns the rule that err was refused by; "" if the guard did not
// refuse.
func RuleOf(err error) Rule {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Rule
	}

	return ""
}

func refuse(rule Rule, cause error, format string, args ...any) *Refusal {
	return &Refusal{rule, fmt.Sprintf(format, args...), cause}
}
