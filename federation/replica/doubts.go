package replica

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The bounds by which a node is judged that other nodes of its domain contradict. Nodes that only lag
// behind reach an announced change within doubtFor.
const (
	doubtFor    = 20 * time.Second // for which two nodes must have contradicted it
	doubtLeast  = 2                // nodes, so that no single key silences an honest node
	distrustFor = time.Hour        // after which the node's word is taken again
	maxDoubts   = 100              // contradictions that are kept of a stream
)

// A doubtKind is the subject on which a node contradicts others.
type doubtKind string

const (
	doubtPosition doubtKind = "position" // it states one that they have not reached
	doubtInvented doubtKind = "invented" // it announces a change that they don't
	doubtOmitted  doubtKind = "omitted"  // it leaves out a change that they announce
	doubtKeys     doubtKind = "keys"     // it issues a key document that they have not reached
)

// A doubtKey identifies a contradiction.
type doubtKey struct {
	node   spiffeid.ID // whose word this domain took
	kind   doubtKind
	aud    directory.Audience
	rid    directory.RID
	change directory.Position // zero for a doubtPosition and doubtKeys
}

// A doubt is a contradiction between a node and others of its domain.
type doubt struct {
	doubtKey

	kid     string
	at      directory.Position // with a zero change the first that was stated, until another node reaches it
	against []spiffeid.ID
	since   map[spiffeid.ID]time.Time // when each node first was against it
}

// A Doubtful is a node of an origin whose word other nodes of the origin contradict.
type Doubtful struct {
	Node       spiffeid.ID
	Key        string // id of the key that signed the contradicted statement
	What       string
	Since      time.Time
	Distrusted time.Time // when this node began to refuse its word; zero if too few nodes contradict it
}

// Verdict returns this node's judgement of a doubtful node: "undecided" or "distrusted".
func (d Doubtful) Verdict() string {
	if d.Distrusted.IsZero() {
		return "undecided"
	}

	return "distrusted"
}

// doubts are the contradictions between an origin's nodes, and the nodes that are distrusted for them.
type doubts struct {
	some atomic.Bool // a node is or was distrusted, so that its word has to be judged

	mu         sync.Mutex // guards the fields below
	reached    map[spiffeid.ID]directory.Position
	open       map[doubtKey]*doubt
	distrusted map[spiffeid.ID]Doubtful
}

// attested reports whether another node than the one that stated a position has reached it.
func (d *doubts) attested(by spiffeid.ID, position directory.Position) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.isReached(by, position)
}

// isReached is attested. d.mu is held.
func (d *doubts) isReached(by spiffeid.ID, position directory.Position) bool {
	for node, reached := range d.reached {
		if node != by && !reached.Before(position) {
			return true
		}
	}

	return false
}

// weigh notes the contradictions that testimonies found. It returns a node that is to be distrusted from
// now on, and how far the nodes are that contradict it.
func (d *doubts) weigh(found []*doubt, all []Testimony, now time.Time) (node Doubtful, from directory.Position,
	is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.reached == nil {
		d.reached = map[spiffeid.ID]directory.Position{}
	}

	for _, testimony := range all {
		if d.reached[testimony.Node].Before(testimony.At) {
			d.reached[testimony.Node] = testimony.At
		}
	}

	// Contradictions that this round didn't find are dropped, with the time for which they lasted.
	before := d.open
	d.open = map[doubtKey]*doubt{}

	for _, doubted := range found {
		doubted.since = map[spiffeid.ID]time.Time{}

		lasts := before[doubted.doubtKey]

		// All positions that a node states are one doubt, so that stating a later one each round gains no time.
		// The time begins anew once another node has reached the first of them.
		if lasts != nil && (doubted.change != directory.Position{} || !d.isReached(doubted.node, lasts.at)) {
			doubted.since, doubted.at = lasts.since, lasts.at
		}

		for _, other := range doubted.against {
			if _, known := doubted.since[other]; !known {
				doubted.since[other] = now
			}
		}

		d.open[doubted.doubtKey] = doubted
	}

	for _, lasting := range d.open {
		if from, is := lasting.convicts(all, now); is {
			node = lasting.describe()
			node.Distrusted = now

			return node, from, true
		}
	}

	return node, from, false
}

// convicts reports whether most of the nodes that answer have contradicted a node for long enough, and how
// far they are.
func (d *doubt) convicts(all []Testimony, now time.Time) (from directory.Position, is bool) {
	against, others := 0, 0

	for _, testimony := range all {
		if testimony.Node == d.node {
			continue
		}

		others++

		since, is := d.since[testimony.Node]
		if !is || !slices.Contains(d.against, testimony.Node) || now.Sub(since) < doubtFor {
			continue
		}

		// The least of their positions, so that the pages of each of them are new enough for the pull that
		// follows.
		if against == 0 || testimony.At.Before(from) {
			from = testimony.At
		}

		against++
	}

	return from, against >= doubtLeast && 2*against > others
}

// describe returns the doubt for operators.
func (d *doubt) describe() Doubtful {
	doubtful := Doubtful{Node: d.node, Key: d.kid}

	for _, since := range d.since {
		if doubtful.Since.IsZero() || since.Before(doubtful.Since) {
			doubtful.Since = since
		}
	}

	switch d.kind {
	case doubtPosition:
		doubtful.What = fmt.Sprintf("it states position %s, which no other node has reached", d.at)
	case doubtKeys:
		doubtful.What = fmt.Sprintf("it issues key document %s, which no other node has", d.at)
	case doubtInvented:
		doubtful.What = fmt.Sprintf("it announces change %d of registration %s, which other nodes don't", d.at.Revision,
			d.rid)
	case doubtOmitted:
		doubtful.What = fmt.Sprintf("it leaves out change %d of registration %s, which other nodes announce",
			d.at.Revision, d.rid)
	}

	return doubtful
}

// distrust notes that a node's word is not taken any more.
func (d *doubts) distrust(node Doubtful) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.distrusted == nil {
		d.distrusted = map[spiffeid.ID]Doubtful{}
	}

	// The pulls that remove entries of earlier ones have ended long ago.
	maps.DeleteFunc(d.distrusted, func(_ spiffeid.ID, earlier Doubtful) bool {
		return node.Distrusted.Sub(earlier.Distrusted) >= 24*distrustFor
	})

	d.distrusted[node.Node] = node
	d.some.Store(true)
	d.open = nil
	delete(d.reached, node.Node)
}

// distrustedUntil returns until when a node's word is not taken; zero if it was never distrusted. Later a repeated
// pull still removes the node's entries from before.
func (d *doubts) distrustedUntil(node spiffeid.ID) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()

	if found, is := d.distrusted[node]; is {
		return found.Distrusted.Add(distrustFor)
	}

	return time.Time{}
}

// distrusts reports whether a node's word is not taken.
func (d *doubts) distrusts(node spiffeid.ID, now time.Time) bool {
	return now.Before(d.distrustedUntil(node))
}

// saved returns the distrusted nodes as they are stored; nil for none.
func (d *doubts) saved() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()

	if len(d.distrusted) == 0 {
		return nil
	}

	data, err := json.Marshal(slices.Collect(maps.Values(d.distrusted)))
	if err != nil {
		panic(err) // names, texts and times always encode
	}

	return data
}

// load takes the distrusted nodes that saved returned.
func (d *doubts) load(data []byte) error {
	if len(data) == 0 {
		return nil
	}

	var all []Doubtful
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("%w (distrusted nodes: %w)", store.ErrStore, err)
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.distrusted = map[spiffeid.ID]Doubtful{}
	for _, node := range all {
		d.distrusted[node.Node] = node
	}

	d.some.Store(len(all) > 0)

	return nil
}

// list returns the nodes that are distrusted, and those that have been contradicted for long.
func (d *doubts) list(now time.Time) (all []Doubtful) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, node := range d.distrusted {
		if now.Sub(node.Distrusted) < distrustFor {
			all = append(all, node)
		}
	}

	for _, lasting := range d.open {
		node := lasting.describe()
		known := slices.ContainsFunc(all, func(other Doubtful) bool { return other.Node == node.Node })

		if !known && now.Sub(node.Since) >= doubtFor {
			all = append(all, node)
		}
	}

	slices.SortFunc(all, func(a, b Doubtful) int { return a.Since.Compare(b.Since) })

	return all
}

// distrust refuses the word of a node from now on, and pulls the origin's streams again from the others,
// which are at least as far as the position from.
func (o *Origin) distrust(node Doubtful, from directory.Position) error {
	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	if o.HasEnded() {
		return nil
	}

	// The gate refuses the node's pages before the pull begins, so that the pull can't bring them back.
	o.noteDistrust(node)
	o.Cfg.Doubted(o.Domain, node)

	return o.repull(from)
}

// noteDistrust notes that a node's word is not taken any more, and has that written with the next change.
func (o *Origin) noteDistrust(node Doubtful) {
	o.Doubts.distrust(node)

	o.mu.Lock()
	defer o.mu.Unlock()

	o.kept.Distrusted = o.Doubts.saved()
}

// doubtful returns the nodes of the origin that other nodes of it contradict, or that are distrusted.
func (o *Origin) doubtful(now time.Time) []Doubtful {
	all := o.Doubts.list(now)

	for _, node := range o.keyDoubts.list(now) {
		if !slices.ContainsFunc(all, func(other Doubtful) bool { return other.Node == node.Node }) {
			all = append(all, node)
		}
	}

	return all
}

// unannounced returns the revoked keys and those of distrusted nodes. A repeated pull ends with the
// removal of their entries, except those that the origin has announced again. Those of a page that was
// verified at the returned time (Unix milliseconds) or later stay: the node was trusted again.
func (o *Origin) unannounced() map[string]int64 {
	before := map[string]int64{}

	for _, key := range o.knownKeys() {
		if until := o.Doubts.distrustedUntil(key.Node); !until.IsZero() {
			before[key.KeyID()] = until.UnixMilli()
		}
	}

	for id := range o.Keys.revokedKeys() {
		before[id] = math.MaxInt64
	}

	return before
}
