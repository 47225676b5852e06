package mirror_test

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/federation/mirror"
	"github.com/roster-mesh/roster/federation/protocol"
)

var must = directorytest.Must

const epoch = 1793491200

var (
	beta = spiffeid.RequireTrustDomainFromString("beta.test")
	key  = ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, beta"))
)

func statement(i int) directory.Hash {
	return directory.HashOf(binary.BigEndian.AppendUint64(nil, uint64(i)))
}

// An origin is beta's ledger as one of its nodes shows it.
type origin struct {
	entries []ledger.Entry
	signer  ed25519.PrivateKey
	lie     func(entries []ledger.Entry) []ledger.Entry // about the entries of a bundle
	asked   int
	large   uint64 // the size by its word
	witness bool   // has its checkpoints cosigned
	quorum  string // of its policy
	busy    int    // bundles that it refuses before it shows one
	more    int    // cosigners of further names, which its policy lists, too
	panics  string // the beginning of a path that makes the reader panic
}

func newOrigin(n int) *origin {
	o := &origin{signer: key, quorum: "w"}
	for i := range n {
		o.entries = append(o.entries, ledger.EntryOfHash(ledger.Statement, statement(i)))
	}

	return o
}

func (o *origin) note() string { return o.noteOf(epoch) }

// noteOf returns the checkpoint of a ledger with the same entries of an epoch.
func (o *origin) noteOf(epoch uint64) string {
	var f ledger.Frontier
	for _, e := range o.entries {
		f.Append(e)
	}

	text := checkpoint.Sign(checkpoint.Checkpoint{
		Origin: directory.LogName(beta, epoch), Size: max(f.Size, o.large), Root: f.Root(),
	}, o.signer)

	if note, err := checkpoint.Parse(text); err == nil && o.witness {
		text += checkpoint.Cosign(note, "w", witness, time.Unix(int64(epoch), 0))
		for i := range o.more {
			name, key := further(i)
			text += checkpoint.Cosign(note, name, key, time.Unix(int64(epoch), 0))
		}
	}

	return text
}

var witness = ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, wit."))

// further returns a witness's name of 200 bytes, and its key.
func further(i int) (name string, key ed25519.PrivateKey) {
	seed := directory.HashOf([]byte{byte(i)})

	return fmt.Sprintf("%0200d", i), ed25519.NewKeyFromSeed(seed[:])
}

func (o *origin) policy() string {
	log := checkpoint.VerifierKey{Name: directory.LogName(beta, epoch), Type: checkpoint.TypeLog,
		Key: o.signer.Public().(ed25519.PublicKey)}
	w := checkpoint.VerifierKey{Name: "w", Type: checkpoint.TypeWitness, Key: witness.Public().(ed25519.PublicKey)}
	away := checkpoint.VerifierKey{Name: "a", Type: checkpoint.TypeWitness, Key: key.Public().(ed25519.PublicKey)}

	text := fmt.Sprintf("log %s\nwitness w %s\nwitness a %s\ngroup both all w a\n", log, w, away)
	for i := range o.more {
		name, key := further(i)
		text += fmt.Sprintf("witness w%d %s\n", i, checkpoint.VerifierKey{Name: name, Type: checkpoint.TypeWitness,
			Key: key.Public().(ed25519.PublicKey)})
	}

	return text + "quorum " + o.quorum + "\n"
}

func (o *origin) get(path string) (string, error) {
	o.asked++

	path, ok := strings.CutPrefix(path, fmt.Sprintf("/log/%d/", epoch))

	if !ok {
		return "", errors.New("404")
	}

	if o.panics != "" && strings.HasPrefix(path, o.panics) {
		panic("planted")
	}

	if path == "checkpoint" {
		return o.note(), nil
	}

	if path == "policy" {
		return o.policy(), nil
	}

	for n := uint64(0); n*ledger.TileWidth < uint64(len(o.entries)); n++ {
		bundle := o.entries[n*ledger.TileWidth : min((n+1)*ledger.TileWidth, uint64(len(o.entries)))]
		if path != "tile/entries/"+ledger.TilePath(n, len(bundle)) {
			continue
		}

		if o.busy--; o.busy >= 0 {
			return "", errors.New("429")
		}

		if o.lie != nil {
			bundle = o.lie(bundle)
		}

		var data []byte
		for _, e := range bundle {
			data = append(append(data, 0, byte(len(e))), e[:]...)
		}

		return string(data), nil
	}

	return "", errors.New("404")
}

// A follower follows beta's ledger at some of its nodes.
type follower struct {
	*mirror.Mirrors

	dir   string
	nodes map[string]*origin
	forks []string
	trust []ed25519.PrivateKey // that may sign checkpoints
	bytes uint64               // that the copy may take
	// witnesses are the keys by which other domains cosign.
	witnesses map[string]ed25519.PrivateKey
}

func newFollower(t *testing.T, dir string, nodes ...*origin) *follower {
	f := &follower{dir: dir, nodes: map[string]*origin{}, trust: []ed25519.PrivateKey{key}, bytes: 1}
	for i, o := range nodes {
		f.nodes[fmt.Sprint("https://n", i)] = o
	}

	f.Mirrors = mirror.Open(mirror.Config{
		Dir: dir,
		Get: func(_ context.Context, node protocol.Node, path string, _ int) (string, error) {
			return f.nodes[node.Base].get(path)
		},
		Bytes: func(spiffeid.TrustDomain) uint64 { return f.bytes },
		Keys: func(spiffeid.TrustDomain) (keys []checkpoint.VerifierKey) {
			for _, key := range f.trust {
				for _, named := range []uint64{epoch, epoch + 1} {
					keys = append(keys, checkpoint.VerifierKey{Name: directory.LogName(beta, named),
						Type: checkpoint.TypeLog, Key: key.Public().(ed25519.PublicKey)})
				}
			}

			return keys
		},
		WitnessKeys: func(domain spiffeid.TrustDomain) (keys []checkpoint.VerifierKey) {
			if key := f.witnesses[domain.Name()]; key != nil {
				keys = []checkpoint.VerifierKey{{Key: key.Public().(ed25519.PublicKey)}}
			}

			return keys
		},
		Forked: func(_ spiffeid.TrustDomain, held, other string) { f.forks = append(f.forks, held, other) },
	})
	t.Cleanup(func() { _ = f.Close() })

	return f
}

func (f *follower) follow(t *testing.T) error {
	var nodes []protocol.Node
	for i := range len(f.nodes) {
		nodes = append(nodes, protocol.Node{Domain: beta, Base: fmt.Sprint("https://n", i)})
	}

	return f.Follow(t.Context(), beta, epoch, nodes)
}

func (f *follower) holds(t *testing.T, n int) {
	t.Helper()

	for i := range n {
		if log, ok := f.Includes(beta, uint64(i), statement(i)); !ok || log != directory.LogName(beta, epoch) {
			t.Fatalf("statement %d of %d is not included", i, n)
		}
	}

	if _, ok := f.Includes(beta, uint64(n), statement(n)); ok {
		t.Errorf("statement %d is included, of %d", n, n)
	}

	if _, ok := f.Includes(beta, 0, statement(1)); ok && n > 1 {
		t.Error("a statement is included at the index of another")
	}
}

// Requirement: LOG-013
func TestALedgerIsFollowedAsItGrows(t *testing.T) {
	beta1 := newOrigin(10)
	f := newFollower(t, t.TempDir(), beta1)

	for _, n := range []int{10, 11, 255, 256, 257, 900} {
		beta1.entries = newOrigin(n).entries

		must(t, f.follow(t))

		f.holds(t, n)
	}

	note, path, err := f.Prove(beta, epoch, 500)
	must(t, err)

	held, err := checkpoint.Parse(note)
	must(t, err)

	e := ledger.EntryOfHash(ledger.Statement, statement(500))
	if err := held.Includes(e[:], 500, path); err != nil {
		t.Error(err)
	}

	for _, absent := range []struct {
		of           spiffeid.TrustDomain
		epoch, index uint64
	}{{beta, epoch, 900}, {beta, epoch + 1, 500}, {directorytest.Gamma, epoch, 0}} {
		if _, path, err := f.Prove(absent.of, absent.epoch, absent.index); !errors.Is(err, ledger.ErrNoTile) {
			t.Errorf("%+v is proved by %v (%v)", absent, path, err)
		}
	}

	// After a restart nothing is asked for again.
	must(t, f.Close())

	again := newFollower(t, f.dir, beta1)
	beta1.asked = 0

	if err := again.follow(t); err != nil || beta1.asked != 1 {
		t.Errorf("after a restart: %v, %d files", err, beta1.asked)
	}

	again.holds(t, 900)
}

// A node that stands still, and signs as before, does not hold up the copy for which another has more.
//
// Requirement: LOG-013
func TestANodeThatStandsStillHoldsNoCopy(t *testing.T) {
	f := newFollower(t, t.TempDir(), newOrigin(10), newOrigin(20), newOrigin(10))

	for range 1000 {
		must(t, f.follow(t))

		if f.Note(beta).Size == 20 {
			break
		}
	}

	f.holds(t, 20)

	// Beside a node that is up to date, one that is behind is no failure.
	for range 20 {
		if _, why := f.Age(beta); why != "" {
			t.Fatal(why)
		}

		must(t, f.follow(t))
	}
}

// A panic on a file of one node is an error of that node. The others are followed.
//
// Requirement: FORM-006
func TestAPanicOnAFileOfOneNodeHoldsNoCopy(t *testing.T) {
	for _, path := range []string{"checkpoint", "tile", "policy"} {
		bad := newOrigin(10)
		bad.panics, bad.witness = path, true

		alone := newFollower(t, t.TempDir(), bad)

		var contained *contain.Error
		if err := alone.follow(t); !errors.As(err, &contained) {
			t.Errorf("%s: got %v", path, err)
		}

		if _, why := alone.Age(beta); !strings.Contains(why, "planted") {
			t.Errorf("%s: the status says %q", path, why)
		}

		// The nodes are asked in a random order.
		for range 8 {
			f := newFollower(t, t.TempDir(), bad, newOrigin(10))

			must(t, f.follow(t))
			f.holds(t, 10)
		}
	}
}

// What a loss of power left behind the last checkpoint, or took from before it, does not hold up the copy, whose origin
// has one node, whether or not its ledger grows.
//
// Requirement: LOG-013
func TestTheCopyOfOneNodesLedgerHeals(t *testing.T) {
	for _, size := range []int64{0, 2} { // of the files, in place of 1
		for _, grown := range []int{10, 300} {
			node := newOrigin(10)
			f := newFollower(t, t.TempDir(), node)

			must(t, errors.Join(f.follow(t), f.Close()))

			files, err := filepath.Glob(filepath.Join(f.dir, "beta.test", "*", "*[es01]"))
			if err != nil || len(files) != 3 {
				t.Fatal(files, err)
			}

			for _, file := range files {
				info, err := os.Stat(file)
				must(t, err)

				must(t, os.Truncate(file, size*info.Size()))
			}

			node.entries = newOrigin(grown).entries
			again := newFollower(t, f.dir, node)

			if err := again.follow(t); err != nil {
				t.Error(err)
			}

			again.holds(t, grown)
		}
	}
}

// What a checkpoint doesn't commit to is not kept, and an honest node is asked after a liar.
//
// Requirement: LOG-013
func TestEntriesOfAnotherLedgerAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, lie := range map[string]func([]ledger.Entry) []ledger.Entry{
			"another entry": func(es []ledger.Entry) []ledger.Entry {
				es = append([]ledger.Entry(nil), es...)
				es[len(es)-1][7]++

				return es
			},
			"one too few":  func(es []ledger.Entry) []ledger.Entry { return es[1:] },
			"one too many": func(es []ledger.Entry) []ledger.Entry { return append(es[:len(es):len(es)], es[0]) },
		} {
			liar, honest := newOrigin(300), newOrigin(300)
			f := newFollower(t, t.TempDir(), liar)

			liar.lie = lie

			if err := f.follow(t); err == nil {
				t.Errorf("%s: followed at first", name)
			}

			f.holds(t, 0)

			liar.lie = nil

			must(t, f.follow(t))

			liar.entries, honest.entries, liar.lie = newOrigin(600).entries, newOrigin(600).entries, lie

			if err := f.follow(t); err == nil {
				t.Errorf("%s: followed", name)
			}

			f.holds(t, 300)

			f.nodes["https://n1"] = honest
			if err := f.follow(t); err != nil {
				t.Errorf("%s, with an honest node: %v", name, err)
			}

			f.holds(t, 600)
		}
	})
}

// A node that refuses a file for a while is asked for it again. Until the rest has come, the copy is what it was, even
// if what has come before is of another ledger.
//
// Requirement: LOG-013
func TestABrokenAttemptLeavesTheCopyAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newOrigin(300)
		f := newFollower(t, t.TempDir(), node)

		node.busy = 3

		must(t, f.follow(t))

		// A bundle with another entry comes whole, and the next one doesn't come.
		node.entries = newOrigin(600).entries
		node.lie = func(entries []ledger.Entry) []ledger.Entry {
			node.busy = 99
			entries = slices.Clone(entries)
			entries[99][7]++

			return entries
		}

		for range 2 { // a smaller checkpoint follows, which those entries would reach
			if err := f.follow(t); err == nil {
				t.Error("followed")
			}

			f.holds(t, 300)

			node.entries = newOrigin(400).entries
		}

		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Requirement: LOG-013, LOG-017
func TestAnotherLedgerIsNotFollowed(t *testing.T) {
	held := newOrigin(300)
	f := newFollower(t, t.TempDir(), held)

	must(t, f.follow(t))

	first := held.note()

	held.signer = ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, rho!"))
	held.entries = newOrigin(400).entries

	if err := f.follow(t); err == nil {
		t.Error("followed a checkpoint of a stranger")
	}

	held.signer = key
	held.entries = newOrigin(400).entries
	held.entries[7][5]++ // another beginning

	if err := f.follow(t); err == nil || len(f.forks) > 0 {
		t.Errorf("followed a ledger that does not continue the one before: %v, %q", err, f.forks)
	}

	f.holds(t, 300)

	held.entries = held.entries[:300]
	if err := f.follow(t); err == nil || len(f.forks) != 2 || f.forks[0] != first || f.forks[1] != held.note() {
		t.Errorf("two roots of one size: %v, %q", err, f.forks)
	}

	f.holds(t, 300)

	held.entries = newOrigin(200).entries // a node that is behind

	if err := f.follow(t); err != nil {
		t.Error(err)
	}

	f.holds(t, 300)

	// A next epoch's ledger takes the place of the copy, and one that is too large is not followed.
	held.large = mirror.LeastEntries + 1

	nodes := []protocol.Node{{Domain: beta, Base: "https://n0"}}

	for bytes, tooLarge := range map[uint64]bool{1: true, 2 << 30: false, 0: false} {
		f.bytes = bytes

		// Its further entries are nowhere, so one that is not too large is asked for them in vain.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err := f.Follow(ctx, beta, epoch, nodes)

		cancel()

		if err == nil || strings.Contains(err.Error(), "too many entries") != tooLarge {
			t.Errorf("a ledger of over 2^24 entries, with a quota of %d bytes: %v", bytes, err)
		}
	}

	f.holds(t, 300)

	if err := f.Follow(t.Context(), beta, epoch+1, nil); err != nil {
		t.Error(err)
	}

	left, err := filepath.Glob(filepath.Join(f.dir, "beta.test", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != fmt.Sprint(epoch+1) {
		t.Errorf("%q are left, %v", left, err)
	}

	must(t, f.Forget(beta))

	f.holds(t, 0)
}

// What another node was shown is compared with the copy: two roots of one size are reported, with both notes;
// a beginning of another tree is no evidence; what has grown meanwhile, or isn't signed by the origin, says nothing.
//
// Requirement: LOG-017
func TestTheCopyIsComparedWithWhatAnotherNodeWasShown(t *testing.T) {
	held, shown := newOrigin(300), newOrigin(300)
	by := protocol.Node{Domain: spiffeid.RequireTrustDomainFromString("gamma.test"), Base: "https://n1"}
	f := newFollower(t, t.TempDir(), held)

	must(t, f.follow(t))

	other := func(n int) []ledger.Entry {
		entries := newOrigin(n).entries
		entries[7][5]++

		return entries
	}

	stranger := ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, rho!"))

	for name, c := range map[string]struct {
		entries              []ledger.Entry
		signer               ed25519.PrivateKey
		discontinued, forked bool
	}{
		"the same":              {newOrigin(300).entries, key, false, false},
		"a beginning":           {newOrigin(200).entries, key, false, false},
		"a later tree":          {other(400), key, false, false},
		"two roots of one size": {other(300), key, true, true},
		"another beginning":     {other(200), key, true, false},
		"signed by a stranger":  {other(300), stranger, false, false},
	} {
		f.forks, shown.entries, shown.signer = nil, c.entries, c.signer

		err := f.Compare(beta, epoch, by, shown.note())
		if errors.Is(err, mirror.ErrDiscontinued) != c.discontinued ||
			(err == nil) != (!c.discontinued && c.signer.Equal(key)) {
			t.Errorf("%s: %v", name, err)
		}

		if differs := f.Differs(beta); slices.Contains(differs, by.Base) != c.discontinued {
			t.Errorf("%s: another ledger was shown to %v", name, differs)
		}

		want := []string{held.note(), shown.note()}
		if !c.forked {
			want = nil
		}

		if !slices.Equal(f.forks, want) {
			t.Errorf("%s: %q are reported", name, f.forks)
		}

		// The nodes show one ledger later, or the peering with the other domain ends.
		if c.forked {
			must(t, f.Forget(by.Domain))
		} else if err := f.Compare(beta, epoch, by, newOrigin(200).note()); err != nil {
			t.Fatal(err)
		}

		if differs := f.Differs(beta); len(differs) > 0 {
			t.Errorf("%s: afterwards another ledger was shown to %v", name, differs)
		}
	}

	// A ledger of another epoch is another one, whichever of the two a node shows as the other.
	shown.entries, shown.signer, f.forks = other(300), key, nil
	if err := f.Compare(beta, epoch+1, by, shown.noteOf(epoch+1)); err != nil {
		t.Errorf("of another epoch: %v", err)
	}

	if err := f.Compare(beta, epoch, by, shown.noteOf(epoch+1)); err == nil || errors.Is(err, mirror.ErrDiscontinued) {
		t.Errorf("of another epoch in place of this one: %v", err)
	}

	if differs := f.Differs(beta); len(differs) > 0 || f.forks != nil {
		t.Errorf("of another epoch: another ledger was shown to %v; %q are reported", differs, f.forks)
	}

	for _, base := range []string{"https://n3", "https://n1", "https://n2"} {
		by.Base = base
		_ = f.Compare(beta, epoch, by, shown.note())
	}

	if differs := f.Differs(beta); !slices.Equal(differs, []string{"https://n1", "https://n2", "https://n3"}) {
		t.Errorf("another ledger was shown to %v", differs)
	}

	f.holds(t, 300)
}

// A copy whose checkpoint was signed by a key before stays while nothing continues it.
//
// Requirement: LOG-013
func TestTheCopyOutlivesTheKeyOfItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newOrigin(300)
		f := newFollower(t, t.TempDir(), node)

		must(t, f.follow(t))

		f.trust, node.signer = []ed25519.PrivateKey{witness}, witness
		node.entries, node.busy = newOrigin(600).entries, 99

		if err := f.follow(t); err == nil {
			t.Error("followed at a node that shows no entries")
		}

		f.holds(t, 300)
		must(t, f.Close())
	})
}

// The age of a ledger's checkpoint grows while its nodes show none, one that is not signed, or one that is behind
// the one before, and the reason is known. An unchanged one is as good as a new one.
//
// Requirement: LOG-013
func TestTheAgeOfACheckpointAndItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newOrigin(300)
		f := newFollower(t, t.TempDir(), node)

		for _, c := range []struct {
			entries int
			signer  ed25519.PrivateKey
			why     string // empty if the age begins anew
		}{
			{300, key, ""},
			{300, key, ""},
			{200, key, "its checkpoint has 200 entries, and the one before had 300"},
			{300, witness, "not signed by a key of the key document"},
			{301, key, ""},
		} {
			node.entries, node.signer = newOrigin(c.entries).entries, c.signer
			before, _ := f.Age(beta)

			time.Sleep(time.Minute)

			_ = f.follow(t)

			age, why := f.Age(beta)
			if c.why == "" && (age != 0 || why != "") ||
				c.why != "" && (age != before+time.Minute || !strings.Contains(why, c.why)) {
				t.Errorf("%d entries: age %v after %v, %q", c.entries, age, before, why)
			}
		}

		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Cosignatures count if they are the quorum, and for the entries of the copy only: neither those of a smaller
// checkpoint of another ledger do, nor does a node that is behind take any away, nor are they of what follows.
//
// Requirement: LOG-013
func TestWitnessesOfACheckpoint(t *testing.T) {
	node := newOrigin(300)
	f := newFollower(t, t.TempDir(), node)

	must(t, f.follow(t))

	node.witness = true
	node.entries = newOrigin(200).entries
	node.entries[7][5]++ // another beginning

	if err := f.follow(t); !errors.Is(err, mirror.ErrDiscontinued) || f.Witnesses(beta, 100) != nil {
		t.Errorf("a smaller checkpoint of another ledger: %v, witnesses %v", err, f.Witnesses(beta, 100))
	}

	for _, c := range []struct {
		entries int
		quorum  string
		covered uint64
	}{{300, "both", 0}, {200, "w", 200}, {300, "w", 300}, {200, "w", 300}, {310, "both", 300}} {
		node.entries, node.quorum = newOrigin(c.entries).entries, c.quorum

		if err := f.follow(t); err != nil || f.Witnesses(beta, c.covered) != nil ||
			c.covered > 0 && f.Witnesses(beta, c.covered-1) == nil {
			t.Errorf("%d entries, quorum %s: %v, not the first %d have witnesses", c.entries, c.quorum, err, c.covered)
		}
	}

	f.holds(t, 310)

	if err := f.Follow(t.Context(), beta, epoch+1, nil); err != nil || f.Witnesses(beta, 0) != nil {
		t.Errorf("a next epoch's ledger: %v, witnesses %v", err, f.Witnesses(beta, 0))
	}
}

// A cosignature in the name of a domain whose keys are known here counts only by one of them, whatever the origin's
// policy says; and all names together are bounded.
//
// Requirement: LOG-013, SEC-019
func TestNoOriginMakesUpAnotherDomainsCosignature(t *testing.T) {
	node := newOrigin(300)
	node.witness, node.quorum = true, "w"

	for name, c := range map[string]struct {
		known     ed25519.PrivateKey
		more      int
		witnesses int
	}{
		"unknown":     {nil, 0, 1},
		"by its key":  {witness, 0, 1},
		"by another":  {key, 0, 0},
		"of 51 names": {nil, 50, 21},
	} {
		f := newFollower(t, t.TempDir(), node)
		f.witnesses = map[string]ed25519.PrivateKey{"w": c.known}
		node.more = c.more

		must(t, f.follow(t))

		n := 0
		if by := f.Witnesses(beta, 299); by != nil {
			n = len(*by)
		}

		if n != c.witnesses {
			t.Errorf("%s: %d witnesses, want %d", name, n, c.witnesses)
		}
	}
}

// A tree is the beginning of the ledger as followed, or not, or not known yet; and a statement is missing only where
// the ledger was followed beyond its index.
//
// Requirement: SEC-019, LOG-013
func TestAStatementIsMissingOnlyWhereTheLedgerWasFollowed(t *testing.T) {
	f := newFollower(t, t.TempDir(), newOrigin(10))
	must(t, f.follow(t))

	tree := func(n int) (root directory.Hash) {
		var edge ledger.Frontier
		for _, e := range newOrigin(n).entries {
			edge.Append(e)
		}

		return edge.Root()
	}

	for _, c := range []struct {
		epoch, size      uint64
		root             directory.Hash
		begins, followed bool
	}{
		{epoch, 10, tree(10), true, true},
		{epoch, 7, tree(7), true, true},
		{epoch, 7, tree(8), false, true},
		{epoch, 11, tree(11), false, false},
		{epoch + 1, 7, tree(7), false, false},
		{epoch, 0, tree(0), false, false},
		{epoch, mirror.LeastEntries + 1, tree(1), false, false},
	} {
		if begins, followed := f.Begins(beta, c.epoch, c.size, c.root); begins != c.begins || followed != c.followed {
			t.Errorf("a tree of %d entries of epoch %d: %t, %t", c.size, c.epoch, begins, followed)
		}
	}

	lacks := func(index uint64, i int) bool {
		is, err := f.Lacks(beta, index, statement(i))
		if err != nil {
			t.Error(err)
		}

		return is
	}

	if lacks(9, 9) || !lacks(9, 8) || lacks(10, 8) {
		t.Error("another statement is missing")
	}

	// A ledger is too large if its nodes say so that answer, and not by the word of one.
	f.nodes["https://n0"].large = mirror.LeastEntries + 1
	f.nodes["https://n1"] = newOrigin(10)

	for _, large := range []bool{false, true, false, true} {
		f.nodes["https://n1"].large = 0
		if large {
			f.nodes["https://n1"].large = mirror.LeastEntries + 2
		}

		if err := f.follow(t); (err != nil) != large {
			t.Errorf("it is followed: %v", err)
		}

		if begins, _ := f.Begins(beta, epoch, mirror.LeastEntries+1, tree(1)); begins != large {
			t.Errorf("a tree of more entries than are followed: %t, want %t", begins, large)
		}
	}

	must(t, f.Follow(t.Context(), beta, epoch+1, nil))

	if begins, _ := f.Begins(beta, epoch+1, mirror.LeastEntries+1, tree(1)); begins {
		t.Error("the ledger of the next epoch is too large by the size of the one before")
	}
}

// A copy that is damaged here lacks nothing of the domain's ledger.
//
// Requirement: SEC-019
func TestADamagedCopyAccusesNoPeer(t *testing.T) {
	f := newFollower(t, t.TempDir(), newOrigin(1000))
	must(t, f.follow(t))

	files, err := filepath.Glob(filepath.Join(f.dir, "beta.test", "*", "*[s0]"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}

	// Zeros take the place of the hashes, and nothing that of the entries.
	for i, size := range []int64{0, 768 * 32} {
		must(t, errors.Join(os.Truncate(files[i], 0), os.Truncate(files[i], size)))
	}

	err = f.Compare(beta, epoch, protocol.Node{}, newOrigin(601).note())
	if err == nil || errors.Is(err, mirror.ErrDiscontinued) {
		t.Errorf("what another node was shown: %v", err)
	}

	if begins, _ := f.Begins(beta, epoch, 601, directory.Hash{}); begins {
		t.Error("what can't be read begins with no tree")
	}

	if lacks, err := f.Lacks(beta, 7, statement(7)); lacks || err == nil {
		t.Errorf("an entry that can't be read is missing: %t, %v", lacks, err)
	}
}

// A ledger that the thief of one key has shown is not continued by the domain's own. Once the key is revoked, the copy
// begins anew; before, neither key is believed more than the other.
//
// Requirement: LOG-013, SEC-019
func TestTheLedgerOfARevokedKeyIsGivenUp(t *testing.T) {
	thief := ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, sly!"))

	for _, addresses := range []int{1, 2} {
		node, honest := newOrigin(310), newOrigin(320)
		f := newFollower(t, t.TempDir(), slices.Repeat([]*origin{node}, addresses)...)
		f.trust = append(f.trust, thief)

		node.signer, node.witness = thief, true
		node.entries[305][5]++

		must(t, f.follow(t))

		for base := range f.nodes {
			f.nodes[base] = honest
		}

		if err := f.follow(t); !errors.Is(err, ledger.ErrOther) && !errors.Is(err, mirror.ErrDiscontinued) ||
			f.Note(beta).Size != 310 {
			t.Fatalf("while the key is in force: %v, %d entries", err, f.Note(beta).Size)
		}

		if f.Witnesses(beta, 309) == nil {
			t.Error("no witnesses of the thief's ledger")
		}

		f.trust = f.trust[:1]

		must(t, f.follow(t))

		f.holds(t, 320)

		if f.Witnesses(beta, 309) != nil {
			t.Error("the witnesses of the thief's ledger stay")
		}
	}
}
