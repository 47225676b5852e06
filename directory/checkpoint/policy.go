package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxPolicy bounds a policy in bytes.
	MaxPolicy = 256 << 10
	// maxPolicyLines bounds the logs, the witnesses and the groups, each.
	maxPolicyLines = 256
	// NoQuorum is the quorum of a policy that asks for no witnesses.
	NoQuorum = "none"
)

// A Policy says which checkpoints a verifier believes (C2SP tlog-policy): those that any
// of the logs signed and the quorum of witnesses cosigned. ParsePolicy checks the rules
// of the format; a Policy that is made by hand is checked by ParsePolicy of its Text.
type Policy struct {
	Logs      []PolicyLog
	Witnesses []PolicyWitness
	Groups    []PolicyGroup // each after the groups that it names
	Quorum    string        // name of a witness or a group, or NoQuorum
}

// A PolicyLog is a key of a log, of TypeLog, whose name is the log's origin.
type PolicyLog struct {
	Key VerifierKey
	URL string // empty for none
}

// A PolicyWitness is a key of a witness, of TypeWitness.
type PolicyWitness struct {
	Name string // within the policy
	Key  VerifierKey
	URL  string // prefix to which checkpoints are submitted; empty for none
}

// A PolicyGroup cosigned when so many of its members did.
type PolicyGroup struct {
	Name      string
	Threshold int
	Members   []string // names of witnesses and groups
}

// Keys returns the keys of all logs and witnesses.
func (p *Policy) Keys() []VerifierKey {
	var keys []VerifierKey
	for _, l := range p.Logs {
		keys = append(keys, l.Key)
	}

	for _, w := range p.Witnesses {
		keys = append(keys, w.Key)
	}

	return keys
}

// Text returns the policy in the one form that Roster writes.
func (p *Policy) Text() string {
	var b strings.Builder

	// An absent URL would leave a space at the end of its line.
	line := func(words ...string) { b.WriteString(strings.TrimRight(strings.Join(words, " "), " ") + "\n") }

	for _, l := range p.Logs {
		line("log", l.Key.String(), l.URL)
	}

	for _, w := range p.Witnesses {
		line("witness", w.Name, w.Key.String(), w.URL)
	}

	for _, g := range p.Groups {
		threshold := strconv.Itoa(g.Threshold)

		switch g.Threshold {
		case 1:
			threshold = "any"
		case len(g.Members):
			threshold = "all"
		}

		line(append([]string{"group", g.Name, threshold}, g.Members...)...)
	}

	line("quorum", p.Quorum)

	return b.String()
}

// ParsePolicy reads a policy.
func ParsePolicy(text string) (*Policy, error) {
	if len(text) > MaxPolicy {
		return nil, fmt.Errorf("%w: a policy has at most %d bytes, got %d", ErrForm, MaxPolicy, len(text))
	}

	body, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return nil, fmt.Errorf("%w: the policy's last line does not end in a newline", ErrForm)
	}

	parser := policyParser{policy: &Policy{}, names: map[string]bool{}}

	for i, line := range strings.Split(body, "\n") {
		if err := parser.line(line); err != nil {
			return nil, fmt.Errorf("line %d of the policy: %w", i+1, err)
		}
	}

	if parser.policy.Quorum == "" {
		return nil, fmt.Errorf("%w: the policy has no quorum line; without witnesses it is \"quorum none\"", ErrForm)
	}

	return parser.policy, nil
}

// A policyParser holds the names that are defined, and whether a group has them already.
type policyParser struct {
	policy *Policy
	names  map[string]bool
}

func (p *policyParser) line(line string) error {
	for i := range len(line) {
		if c := line[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("%w: control character %#02x", ErrForm, c)
		}
	}

	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}

	switch keyword, words := words[0], words[1:]; keyword {
	case "log":
		return p.log(words)
	case "witness":
		return p.witness(words)
	case "group":
		return p.group(words)
	case "quorum":
		return p.quorum(words)
	default:
		return fmt.Errorf("%w: unknown keyword %q", ErrForm, clip(keyword))
	}
}

func (p *policyParser) log(words []string) error {
	if len(words) < 1 || len(words) > 2 {
		return fmt.Errorf("%w: want \"log VKEY [URL]\"", ErrForm)
	}

	key, err := parseKeyOf(words[0], TypeLog)
	if err != nil {
		return err
	}

	for _, other := range p.policy.Logs {
		if other.Key.Key.Equal(key.Key) {
			return fmt.Errorf("%w: the key of log %s is listed before", ErrForm, clip(key.Name))
		}
	}

	if len(p.policy.Logs) == maxPolicyLines {
		return fmt.Errorf("%w: at most %d logs", ErrForm, maxPolicyLines)
	}

	p.policy.Logs = append(p.policy.Logs, PolicyLog{key, word(words, 1)})

	return nil
}

func (p *policyParser) witness(words []string) error {
	if len(words) < 2 || len(words) > 3 {
		return fmt.Errorf("%w: want \"witness NAME VKEY [URL]\"", ErrForm)
	}

	key, err := parseKeyOf(words[1], TypeWitness)
	if err != nil {
		return err
	}

	// One key by two names would count twice in a quorum.
	for _, other := range p.policy.Witnesses {
		if other.Key.Key.Equal(key.Key) {
			return fmt.Errorf("%w: witness %s has the key of witness %s", ErrForm, clip(words[0]), clip(other.Name))
		}
	}

	if len(p.policy.Witnesses) == maxPolicyLines {
		return fmt.Errorf("%w: at most %d witnesses", ErrForm, maxPolicyLines)
	}

	p.policy.Witnesses = append(p.policy.Witnesses, PolicyWitness{words[0], key, word(words, 2)})

	return p.define(words[0])
}

func (p *policyParser) group(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("%w: want \"group NAME all|any|K NAME…\"", ErrForm)
	}

	group := PolicyGroup{Name: words[0], Members: words[2:]}

	switch words[1] {
	case "any":
		group.Threshold = 1
	case "all":
		group.Threshold = len(group.Members)
	default:
		k, err := parseIndex(words[1])
		if err != nil || k < 1 || k > uint64(len(group.Members)) {
			return fmt.Errorf("%w: group %s needs \"all\", \"any\" or 1 to %d of its members, got %q", ErrForm,
				clip(group.Name), len(group.Members), clip(words[1]))
		}

		group.Threshold = int(k)
	}

	// A member of two groups would count twice in a group of both.
	for _, member := range group.Members {
		switch taken, defined := p.names[member]; {
		case !defined:
			return fmt.Errorf("%w: group %s names %q, which no earlier line defines", ErrForm, clip(group.Name),
				clip(member))
		case taken:
			return fmt.Errorf("%w: %q is in a group already", ErrForm, clip(member))
		}

		p.names[member] = true
	}

	if len(p.policy.Groups) == maxPolicyLines {
		return fmt.Errorf("%w: at most %d groups", ErrForm, maxPolicyLines)
	}

	p.policy.Groups = append(p.policy.Groups, group)

	return p.define(group.Name)
}

func (p *policyParser) quorum(words []string) error {
	switch {
	case len(words) != 1:
		return fmt.Errorf("%w: want \"quorum NAME\" or \"quorum none\"", ErrForm)
	case p.policy.Quorum != "":
		return fmt.Errorf("%w: a second quorum line", ErrForm)
	}

	if _, defined := p.names[words[0]]; !defined && words[0] != NoQuorum {
		return fmt.Errorf("%w: the quorum %q is no witness or group of a line before", ErrForm, clip(words[0]))
	}

	p.policy.Quorum = words[0]

	return nil
}

func (p *policyParser) define(name string) error {
	if _, defined := p.names[name]; defined || name == NoQuorum {
		return fmt.Errorf("%w: the name %q is taken", ErrForm, clip(name))
	}

	p.names[name] = false

	return nil
}

func parseKeyOf(vkey string, kind byte) (VerifierKey, error) {
	key, err := ParseVerifierKey(vkey)
	if err == nil && key.Type != kind {
		return key, fmt.Errorf("%w: vkey %q is of type %#02x; the line wants %#02x", ErrForm, clip(vkey), key.Type,
			kind)
	}

	return key, err
}

func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}

	return ""
}

// A Judgement is the result of Policy.Judge.
type Judgement struct {
	// Logs are the policy's keys of the note's origin that signed it. Without one the
	// policy doesn't believe the note, unless it lists no logs at all.
	Logs []VerifierKey
	// Witnesses are the policy's witnesses that cosigned the note.
	Witnesses []Cosignature
	// Quorum says that the witnesses are those that the policy asks for.
	Quorum bool
}

// A Cosignature is a witness that cosigned a note, and when.
type Cosignature struct {
	Witness PolicyWitness
	At      time.Time
}

// Judge verifies the signatures of a note by the policy's keys. It fails if one of them
// does not hold. Lines by other keys are left alone.
func (p *Policy) Judge(n *Note) (Judgement, error) {
	var found Judgement

	for _, log := range p.Logs {
		// The key of another log shows nothing of this one.
		if log.Key.Name != n.Origin {
			continue
		}

		switch _, err := n.Verify(log.Key); {
		case err == nil:
			found.Logs = append(found.Logs, log.Key)
		case !errors.Is(err, ErrNotSigned):
			return Judgement{}, err
		}
	}

	cosigned := map[string]bool{}

	for _, witness := range p.Witnesses {
		switch at, err := n.Verify(witness.Key); {
		case err == nil:
			found.Witnesses = append(found.Witnesses, Cosignature{witness, at})
			cosigned[witness.Name] = true
		case !errors.Is(err, ErrNotSigned):
			return Judgement{}, err
		}
	}

	// Each group follows its members, so that one pass settles all of them.
	for _, group := range p.Groups {
		count := 0

		for _, member := range group.Members {
			if cosigned[member] {
				count++
			}
		}

		cosigned[group.Name] = count >= group.Threshold
	}

	found.Quorum = p.Quorum == NoQuorum || cosigned[p.Quorum]

	return found, nil
}
