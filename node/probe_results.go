package node

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
)

// findings are what the prober found, of the registrations that there still are.
// They are soft state: in memory alone, with their time, and nothing of them is in the
// log or in what peers are told. The leader finds, the other members copy what it
// found, so that each shows it and whoever leads next goes on from there.
type findings struct {
	mu   sync.RWMutex // guards what follows
	of   map[directory.RID]finding
	log  []findingMark // the order in which they came, the latest of each registration last
	name uint64        // of this order: another member's, or one of another time, has another
	next uint64        // of the next mark
}

// A finding is a directory.Probe in few bytes.
type finding struct {
	statement uint64 // that was compared
	mark      uint64
	at        int64 // Unix milliseconds
	members   uint16
	reason    uint8 // of reasons
	state     uint8 // of probeStates
}

type findingMark struct {
	mark uint64
	rid  directory.RID
}

var (
	// The last one is of a registration that names no place to ask at, so that this is
	// not found out again and again; it is no Probe.
	probeStates = []directory.ProbeState{directory.ProbeVerified, directory.ProbeMismatch, directory.ProbeUnreachable, ""}
	reasons     = []string{"", "nothing", "network", string(gateway.RuleScheme), string(gateway.RulePort), string(gateway.RuleAddress), string(gateway.RuleRedirect),
		string(gateway.RuleCertificate), string(gateway.RuleIdentity), string(gateway.RuleSize), string(gateway.RuleTime)}
)

func newFindings() *findings {
	return &findings{of: map[directory.RID]finding{}, name: rand.Uint64() | 1, next: 1}
}

func pack(p directory.Probe, statement uint64) finding {
	f := finding{statement: statement, at: p.At, state: uint8(slices.Index(probeStates, p.State)), reason: uint8(max(0, slices.Index(reasons, p.Reason)))}
	for i, name := range probe.Compared {
		if slices.Contains(p.Members, name) {
			f.members |= 1 << i
		}
	}
	return f
}

func (f finding) probe() directory.Probe {
	p := directory.Probe{State: probeStates[f.state], Reason: reasons[f.reason], At: f.at}
	for i, name := range probe.Compared {
		if f.members&(1<<i) != 0 {
			p.Members = append(p.Members, name)
		}
	}
	return p
}

// get returns what was found of a registration as it is now.
func (fs *findings) get(e *directory.Entry) (finding, bool) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	f, ok := fs.of[e.RID]
	return f, ok && f.statement == e.Statement
}

// put notes a finding, unless a later one is there.
func (fs *findings) put(rid directory.RID, f finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if old, ok := fs.of[rid]; ok && old.at > f.at {
		return
	}
	f.mark = fs.next
	fs.next++
	fs.of[rid] = f
	fs.log = append(fs.log, findingMark{f.mark, rid})
	if len(fs.log) > 2*len(fs.of)+1024 {
		fs.log = slices.DeleteFunc(fs.log, func(m findingMark) bool { return fs.of[m.rid].mark != m.mark })
	}
}

// prune forgets the registrations that are no more. What was found after recent (Unix
// milliseconds) stays: a member may hear of it before it has the registration.
func (fs *findings) prune(index *index.Index, recent int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for rid, f := range fs.of {
		if _, ok := index.Get(rid); !ok && f.at <= recent {
			delete(fs.of, rid)
		}
	}
}

// count returns how many registrations are in which state.
func (fs *findings) count() (n [4]int) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	for _, f := range fs.of {
		n[f.state]++
	}
	return n
}

// A findingsPage is part of one member's findings, as another asks for it: those
// behind a mark of an order of this name.
type findingsPage struct {
	Name  uint64        `json:"name"`
	Mark  uint64        `json:"mark"` // of the last one
	Items []findingItem `json:"items,omitempty"`
}

type findingItem struct {
	RID       directory.RID `json:"rid"`
	Statement uint64        `json:"statement"`
	At        int64         `json:"at"`
	State     uint8         `json:"state"`
	Members   uint16        `json:"members,omitempty"`
	Reason    uint8         `json:"reason,omitempty"`
}

// maxFindings bounds a page: it fits a message between members.
const maxFindings = 3000

// after returns what came behind a page, which may be of another order.
func (fs *findings) after(last findingsPage) findingsPage {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	page := findingsPage{Name: fs.name}
	from := 0
	if last.Name == fs.name {
		page.Mark = last.Mark
		from, _ = slices.BinarySearchFunc(fs.log, last.Mark+1, func(m findingMark, mark uint64) int { return cmp.Compare(m.mark, mark) })
	}
	for _, m := range fs.log[from:] {
		if len(page.Items) == maxFindings {
			break
		}
		page.Mark = m.mark
		if f := fs.of[m.rid]; f.mark == m.mark {
			page.Items = append(page.Items, findingItem{m.rid, f.statement, f.at, f.state, f.members, f.reason})
		}
	}
	return page
}

// each returns what another member found.
func (p findingsPage) each() iter.Seq2[directory.RID, finding] {
	return func(yield func(directory.RID, finding) bool) {
		for _, i := range p.Items {
			if int(i.State) >= len(probeStates) || int(i.Reason) >= len(reasons) {
				continue // of a release that knows more
			}
			if !yield(i.RID, finding{statement: i.Statement, at: i.At, state: i.State, members: i.Members, reason: i.Reason}) {
				return
			}
		}
	}
}

// answer is what another member is told that asks: it sends the page that it had.
func (fs *findings) answer(question []byte) []byte {
	var last findingsPage
	if json.Unmarshal(question, &last) != nil {
		return nil
	}
	b, err := json.Marshal(fs.after(last))
	if err != nil {
		return nil
	}
	return b
}

// due is when a registration is to be asked, in Unix milliseconds, given what was
// found of it last and since when what is registered is new to this member: not all
// at once, and again not at the same time as the others.
func (fs *findings) due(e *directory.Entry, every time.Duration, since int64) int64 {
	fs.mu.RLock()
	f, ok := fs.of[e.RID]
	fs.mu.RUnlock()
	random := e.RID.AppendBinary(make([]byte, 0, directory.RIDBinary))
	spread := int64(random[directory.RIDBinary-1])<<8 | int64(random[directory.RIDBinary-2])
	switch ms := every.Milliseconds(); {
	case ok && f.statement == e.Statement:
		return f.at + ms*3/4 + ms*((spread+f.at)%97)/194
	case ok || e.UpdatedAt >= since:
		return e.UpdatedAt // it is new, or says something new
	default:
		return since + ms*(spread%97)/97
	}
}
