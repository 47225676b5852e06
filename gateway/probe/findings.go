package probe

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
)

// Findings are the results of probes of the registrations that exist. They are soft state:
// in memory only, with their time; they are not in the log and not exported to peers. The
// leader finds and the other members copy, so that each can show them and the next leader
// continues with them. Findings are safe for concurrent use.
type Findings struct {
	mu    sync.RWMutex // guards the rest
	byRID map[directory.RID]finding
	log   []mark // in the order of arrival; the last one of a registration counts
	name  uint64 // of this order: another member or process has another
	next  uint64 // number of the next mark
}

// A finding is a directory.Probe in few bytes, and as a member sends it to another.
type finding struct {
	Statement uint64 `json:"statement"` // that was compared
	mark      uint64
	At        int64  `json:"at"`                // Unix milliseconds
	Members   uint16 `json:"members,omitempty"` // bit set of Compared
	Reason    uint8  `json:"reason,omitempty"`  // index of reasons
	State     uint8  `json:"state"`             // index of states
}

type mark struct {
	number uint64
	rid    directory.RID
}

var (
	// The last state is of a registration without a source, so that it is not looked for
	// again and again; it is not shown.
	states = []directory.ProbeState{
		directory.ProbeVerified, directory.ProbeMismatch, directory.ProbeUnreachable, noSource,
	}

	reasons = []string{
		"", "nothing", "network",
		string(gateway.RuleScheme), string(gateway.RulePort), string(gateway.RuleAddress),
		string(gateway.RuleRedirect), string(gateway.RuleCertificate), string(gateway.RuleIdentity),
		string(gateway.RuleSize), string(gateway.RuleTime),
	}
)

const noSource directory.ProbeState = ""

// NewFindings returns findings of nothing.
func NewFindings() *Findings {
	return &Findings{byRID: map[directory.RID]finding{}, name: rand.Uint64() | 1, next: 1}
}

func pack(probe directory.Probe, statement uint64) finding {
	found := finding{
		Statement: statement,
		At:        probe.At,
		State:     uint8(slices.Index(states, probe.State)),
		Reason:    uint8(max(0, slices.Index(reasons, probe.Reason))),
	}

	for i, name := range Compared {
		if slices.Contains(probe.Members, name) {
			found.Members |= 1 << i
		}
	}

	return found
}

func (f finding) probe() directory.Probe {
	p := directory.Probe{State: states[f.State], Reason: reasons[f.Reason], At: f.At}

	for i, name := range Compared {
		if f.Members&(1<<i) != 0 {
			p.Members = append(p.Members, name)
		}
	}

	return p
}

// Of returns the last result for a registration of the own domain in its present form; ok
// is false if there is none.
func (fs *Findings) Of(entry *directory.Entry) (result directory.Probe, ok bool) {
	if entry.Received != nil {
		return directory.Probe{}, false
	}

	found, ok := fs.get(entry)
	if !ok || states[found.State] == noSource {
		return directory.Probe{}, false
	}

	return found.probe(), true
}

// get returns the finding for a registration in its present form.
func (fs *Findings) get(entry *directory.Entry) (finding, bool) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()

	found, ok := fs.byRID[entry.RID]

	return found, ok && found.Statement == entry.Statement
}

// put adds a finding, unless a later one is there.
func (fs *Findings) put(rid directory.RID, found finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	if fs.byRID[rid].At > found.At {
		return
	}

	found.mark = fs.next
	fs.next++
	fs.byRID[rid] = found
	fs.log = append(fs.log, mark{found.mark, rid})

	// Marks that a later finding has replaced are dropped in bulk, so a put is cheap on average.
	if len(fs.log) > 2*len(fs.byRID)+1024 {
		fs.log = slices.DeleteFunc(fs.log, func(m mark) bool { return fs.byRID[m.rid].mark != m.number })
	}
}

// prune removes the findings of registrations that no longer exist. Those after recent
// (Unix milliseconds) stay: a finding may arrive before the registration.
func (fs *Findings) prune(index Index, recent int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	for rid, found := range fs.byRID {
		if _, ok := index.Get(rid); !ok && found.At <= recent {
			delete(fs.byRID, rid)
		}
	}
}

// Count returns the number of registrations in each state.
func (fs *Findings) Count() map[directory.ProbeState]int {
	fs.mu.RLock()
	defer fs.mu.RUnlock()

	var counts [4]int
	for _, found := range fs.byRID {
		counts[found.State]++
	}

	byState := map[directory.ProbeState]int{}

	for state, count := range counts {
		if states[state] != noSource {
			byState[states[state]] = count
		}
	}

	return byState
}

// A page is a part of a member's findings, as another member requests it: those after a
// mark of the order with a name.
type page struct {
	Name  uint64 `json:"name"`
	Mark  uint64 `json:"mark"` // of the last item
	Items []item `json:"items,omitempty"`
}

type item struct {
	RID directory.RID `json:"rid"`
	finding
}

// maxItems bounds a page, so that it fits into a message between members.
const maxItems = 3000

// after returns the findings that follow a page; if that is of another order, from the
// beginning.
func (fs *Findings) after(last page) page {
	fs.mu.RLock()
	defer fs.mu.RUnlock()

	next := page{Name: fs.name}
	from := 0

	if last.Name == fs.name {
		next.Mark = last.Mark
		from, _ = slices.BinarySearchFunc(fs.log, last.Mark+1, func(m mark, number uint64) int {
			return cmp.Compare(m.number, number)
		})
	}

	for _, m := range fs.log[from:] {
		if len(next.Items) == maxItems {
			break
		}

		// The mark moves over replaced findings as well, so the next page begins behind them.
		next.Mark = m.number

		if found := fs.byRID[m.rid]; found.mark == m.number {
			next.Items = append(next.Items, item{m.rid, found})
		}
	}

	return next
}

// each iterates over the findings of another member. Those with a state or reason of a
// later release are left out.
func (p page) each() iter.Seq2[directory.RID, finding] {
	return func(yield func(directory.RID, finding) bool) {
		for _, i := range p.Items {
			if int(i.State) >= len(states) || int(i.Reason) >= len(reasons) {
				continue
			}

			if !yield(i.RID, i.finding) {
				return
			}
		}
	}
}

// Answer answers the question of another member's Prober: the findings that follow those
// it has.
func (fs *Findings) Answer(question []byte) []byte {
	var last page
	if json.Unmarshal(question, &last) != nil {
		return nil
	}

	answer, err := json.Marshal(fs.after(last))
	if err != nil {
		return nil
	}

	return answer
}

// due returns when to probe a registration, in Unix milliseconds. since is the time from
// which registrations are new to this leader. The times of different registrations are
// spread over the interval, and change from one probe to the next.
func (fs *Findings) due(entry *directory.Entry, interval time.Duration, since int64) int64 {
	fs.mu.RLock()
	found, ok := fs.byRID[entry.RID]
	fs.mu.RUnlock()

	random := entry.RID.AppendBinary(make([]byte, 0, directory.RIDBinary))
	spread := int64(random[directory.RIDBinary-1])<<8 | int64(random[directory.RIDBinary-2])
	ms := interval.Milliseconds()

	switch {
	case ok && found.Statement == entry.Statement:
		// The next probe comes after three to five quarters of the interval.
		return found.At + ms*3/4 + ms*((spread+found.At)%97)/194
	case ok || entry.UpdatedAt >= since:
		// The registration is new, or has changed since its last probe.
		return entry.UpdatedAt
	default:
		// A new leader spreads the registrations without a finding over one interval.
		return since + ms*(spread%97)/97
	}
}
