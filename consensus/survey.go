package consensus

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
)

// errEmptyDisks says that a domain has no leader because too many of its members have lost their disks.
var errEmptyDisks = errors.New("disks of this domain's members are empty")

// A survey has the answers of the nodes that one join request asks. A node with an empty disk begins
// nothing while a listed node may have the domain's history: it would be a second one.
type survey struct {
	cfg *Config

	mu      sync.Mutex
	asked   map[string]bool
	silent  map[string]error                     // why an address did not answer
	empty   map[spiffeid.ID]*message.JoinRequest // nodes that are in no domain
	holders map[spiffeid.ID]transport.History    // nodes that are in one, of which they know no leader
	next    []string                             // leaders that answers name
	done    *message.JoinAnswer                  // of the leader

	duplicate error // by the leader: another process has this node's identity and its seat
	refused   error // by a member whose knowledge may be old
	err       error // the last
}

// newSurvey begins a survey by the node at own.
func newSurvey(cfg *Config, own string) *survey {
	return &survey{
		cfg: cfg, asked: map[string]bool{own: true}, silent: map[string]error{},
		empty: map[spiffeid.ID]*message.JoinRequest{}, holders: map[spiffeid.ID]transport.History{},
		err: errors.New("no node of the domain is in reach"),
	}
}

// begin reports whether an address is not asked yet.
func (s *survey) begin(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.asked[address]
	s.asked[address] = true

	return !known
}

// add takes the answer of a node.
func (s *survey) add(address string, id spiffeid.ID, answer *message.JoinAnswer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case errors.Is(err, ErrOtherHistory):
		s.refused = err
	case err != nil:
		s.silent[address] = err
		s.err = err
	case answer.Duplicate:
		s.duplicate = directory.Refuse(answer.Problem, "%s", answer.Detail)
	case id == s.cfg.Node:
		// This node has answered at another of its own addresses.
	case answer.Done:
		s.done = answer
	case answer.Empty != nil:
		s.empty[id] = answer.Empty
	case answer.Problem != "":
		s.refused = directory.Refuse(answer.Problem, "%s", answer.Detail)
	case answer.Leader != nil:
		s.next = append(s.next, answer.Leader.Address)
		s.err = fmt.Errorf("the leader, %s, does not answer at %s", answer.Leader.ID, answer.Leader.Address)
	default:
		s.holders[id] = transport.HistoryOf(answer.History)
		s.err = errNoLeader
	}
}

// isOver reports whether the leader has answered.
func (s *survey) isOver() bool { return s.done != nil || s.duplicate != nil }

// failures returns why addresses did not answer.
func (s *survey) failures() []error {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Collect(maps.Values(s.silent))
}

// leaders returns the addresses of leaders that answers have named since the last call.
func (s *survey) leaders() (addresses []string) {
	addresses, s.next = s.next, nil

	return addresses
}

// withoutLeader returns why a member finds no leader among the members of its group.
func (s *survey) withoutLeader(members []server, name transport.History) error {
	voters := 0

	var empty []string
	for _, m := range members {
		if m.voter {
			voters++
		}

		if word := s.empty[m.ID]; m.voter && word != nil && word.Empty {
			empty = append(empty, m.ID.String())
		}
	}

	switch left := voters - len(empty); {
	case len(empty) == 0:
		return s.err
	case 2*left <= voters:
		return fmt.Errorf("%w: those of %s; %d of %d voters can have the history %s, which is no majority: if those "+
			"disks are lost for good, stop this node and back its disk up with \"roster snapshot salvage\" "+
			"(docs/runbooks.md#lost-disks)", errEmptyDisks, strings.Join(empty, ", "), left, voters, name)
	default:
		return fmt.Errorf("%w: those of %s, which vote once this domain lets them in: start the other members first",
			errEmptyDisks, strings.Join(empty, ", "))
	}
}

// candidates returns the nodes with which this one begins a domain, itself too, sorted.
func (s *survey) candidates(self Member) ([]Member, error) {
	static := len(s.cfg.Join) == 0
	found := []Member{self}

	for id, word := range s.empty {
		if word.Reader || word.Expect == 0 {
			continue
		}

		if static && !slices.ContainsFunc(s.cfg.Members, func(m Member) bool { return m.ID == id }) {
			return nil, fmt.Errorf("%s is not among members, and answers at the address of one: make members the same "+
				"on all nodes", id)
		}

		if word.Expect != s.cfg.expected() {
			return nil, fmt.Errorf("%s expects %d nodes to begin the domain with and this one %d: make members or "+
				"bootstrap_expect the same on all", id, word.Expect, s.cfg.expected())
		}

		found = append(found, Member{ID: id, Address: word.Address})
	}

	sortMembers(found)

	expected := s.cfg.expected()
	if static {
		expected -= len(s.cfg.BeginWithout)
	}

	silent := s.silentText()

	switch {
	case len(found) > expected && !static:
		return nil, fmt.Errorf("there are %d nodes to begin the domain with and bootstrap_expect is %d: raise it, or "+
			"start the others later", len(found), expected)
	case len(found) > expected:
		return nil, fmt.Errorf("a node answers at an address that --begin-without names: start this node without that")
	case len(found) < expected || silent != "":
		return nil, fmt.Errorf("%d of the %d nodes that begin the domain are in reach%s", len(found), expected, silent)
	}

	return found, nil
}

// silentText names the listed nodes that do not answer and that no operator has excepted.
func (s *survey) silentText() string {
	var silent []string

	for _, address := range slices.Sorted(maps.Keys(s.silent)) {
		if !slices.Contains(s.cfg.BeginWithout, address) {
			why := s.silent[address]

			// The URL of the request only repeats the address.
			if request, ok := errors.AsType[*url.Error](why); ok {
				why = request.Err
			}

			silent = append(silent, fmt.Sprintf("%s (%v)", address, why))
		}
	}

	if len(silent) == 0 {
		return ""
	}

	return fmt.Sprintf("; no answer at %s: a node there may have the domain's history, so start it; "+
		"if its disk is lost or it never had one, start the others with "+
		"\"roster serve --begin-without ADDRESS\"", strings.Join(silent, ", "))
}

// waitForHistory returns an error if a node is in the domain already. own is this node's request.
func (s *survey) waitForHistory(own *message.JoinRequest) error {
	if len(s.holders) == 0 {
		return nil
	}

	lost := 0
	for _, word := range s.empty {
		if word.Empty {
			lost++
		}
	}

	// This node was let in, so it votes, and its own disk is no cause.
	if !own.Empty {
		return fmt.Errorf("waiting for a leader: %w", errNoLeader)
	}

	lost++

	var holders []string
	for id, name := range s.holders {
		holders = append(holders, fmt.Sprintf("%s (history %s)", id, name))
	}

	slices.Sort(holders)

	waiting := fmt.Sprintf("%s has the domain's history and knows no leader; this node's disk is empty, and it votes "+
		"once the domain has let it in", strings.Join(holders, ", "))
	if 2*lost > s.cfg.expected() {
		return fmt.Errorf("%w: %d of the %d nodes have lost their disks, which leaves no majority; %s: "+
			"if those disks are lost for good, stop the node with the history and back its disk up with "+
			"\"roster snapshot salvage\" (docs/runbooks.md#lost-disks)", errEmptyDisks, lost, s.cfg.expected(), waiting)
	}

	return fmt.Errorf("%s: start the other members", waiting)
}

// agree fails while one of the found nodes has found others, or waits to be let in.
func (s *survey) agree(found []Member) error {
	for _, m := range found {
		if word := s.empty[m.ID]; word != nil && (word.Empty || !slices.Equal(word.Found, found)) {
			return fmt.Errorf("waiting until %s has found the same nodes", m.ID)
		}
	}

	return nil
}

// waived returns the members without which the domain begins, since an operator said so.
func (s *survey) waived() (members []Member) {
	for _, m := range s.cfg.Members {
		if m.ID != s.cfg.Node && slices.Contains(s.cfg.BeginWithout, m.Address) {
			members = append(members, m)
		}
	}

	return members
}

// nameOf returns the name of the history that these nodes begin: that of a node that was about to
// begin it before, or the proposal of the first.
func (s *survey) nameOf(found []Member, own *message.JoinRequest) (transport.History, error) {
	entered := map[transport.History]spiffeid.ID{}

	for _, m := range found {
		word := s.empty[m.ID]
		word = cmp.Or(word, own)

		if word.Empty {
			continue
		}

		// Without all others, it may have been admitted to the history of an absent one.
		if len(s.cfg.BeginWithout) > 0 && !word.Fresh {
			return transport.History{}, fmt.Errorf("%s was admitted to the history %s and has none of it; "+
				"to begin another, stop it and remove its data directory's consensus", m.ID,
				transport.HistoryOf(word.History))
		}

		entered[transport.HistoryOf(word.History)] = m.ID
	}

	switch {
	case len(entered) > 1:
		return transport.History{}, fmt.Errorf("%w: %v were about to be begun; stop these nodes and "+
			"remove the consensus directory of their data", ErrOtherHistory, slices.Collect(maps.Keys(entered)))
	case len(entered) == 1:
		for name := range entered {
			return name, nil
		}
	}

	// The nodes are sorted, so all of them take the proposal of the same one.
	first := s.empty[found[0].ID]
	first = cmp.Or(first, own)

	return transport.HistoryOf(first.History), nil
}

// candidates are the nodes with which this one would begin a domain, and the addresses at which it has
// found nodes.
type candidates struct {
	proposal transport.History // the name of the history that this node would begin
	news     chan struct{}     // holds one signal after another node has said something new

	mu    sync.Mutex
	found []Member
	heard map[spiffeid.ID]string // the last word of each
	at    map[spiffeid.ID]string
}

func newCandidates() *candidates {
	return &candidates{
		proposal: transport.NewHistory(), news: make(chan struct{}, 1),
		heard: map[spiffeid.ID]string{}, at: map[spiffeid.ID]string{},
	}
}

func (c *candidates) get() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.found
}

func (c *candidates) set(found []Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = found
}

// hear takes a request of another node and signals if it says something new.
func (c *candidates) hear(from spiffeid.ID, request *message.JoinRequest) {
	word := fmt.Sprint(request.Empty, request.Found, request.History)

	c.mu.Lock()
	defer c.mu.Unlock()

	if before, known := c.heard[from]; before != word && (known || len(c.heard) < maxMembers) {
		c.heard[from] = word
		signal(c.news)
	}
}

// note remembers at which address a node answers.
func (c *candidates) note(id spiffeid.ID, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if _, known := c.at[id]; known || len(c.at) < maxMembers {
		c.at[id] = address
	}
}

// place returns the address at which a node has answered last.
func (c *candidates) place(id spiffeid.ID) (address string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	address, ok = c.at[id]

	return address, ok
}
