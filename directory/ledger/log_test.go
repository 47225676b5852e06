package ledger_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/ledger"
)

func entry(i uint64) ledger.Entry {
	return ledger.EntryOf(ledger.Statement, binary.BigEndian.AppendUint64(nil, i))
}

func entries(from, to uint64) (es []ledger.Entry) {
	for i := from; i < to; i++ {
		es = append(es, entry(i))
	}

	return es
}

func treeOf(size uint64) ledger.Tree {
	var f ledger.Frontier
	for i := range size {
		f.Append(entry(i))
	}

	return ledger.Tree{Size: size, Root: f.Root()}
}

func open(t *testing.T, dir string) *ledger.Log {
	t.Helper()

	log, err := ledger.Open(dir)
	must(t, err)

	t.Cleanup(func() { _ = log.Close() })

	return log
}

func reset(t *testing.T, log *ledger.Log, tree ledger.Tree) {
	t.Helper()

	must(t, log.Reset(tree))
}

// naive is the tree hash of RFC 6962, 2.1, word for word.
func naive(es []ledger.Entry) tlog.Hash {
	switch len(es) {
	case 0:
		return tlog.Hash(directory.HashOf(nil))
	case 1:
		return tlog.RecordHash(es[0][:])
	}

	k := 1
	for 2*k < len(es) {
		k *= 2
	}

	return tlog.NodeHash(naive(es[:k]), naive(es[k:]))
}

// Requirement: MESH-020
func TestAFrontierHasTheRootOfTheNaiveTree(t *testing.T) {
	var f ledger.Frontier

	for size := range 600 {
		if got, want := f.Root(), naive(entries(0, uint64(size))); got != directory.Hash(want) {
			t.Fatalf("%d entries: root %s, want %s", size, got, want)
		}

		if at := f.Append(entry(uint64(size))); at != uint64(size) {
			t.Fatalf("entry %d got index %d", size, at)
		}
	}
}

// Requirement: MESH-020
func TestAFrontierHasTheRootOfTlogAt100000(t *testing.T) {
	var (
		f      ledger.Frontier
		stored []tlog.Hash
	)

	read := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, _ error) {
		for _, n := range at {
			out = append(out, stored[n])
		}

		return out, nil
	})
	for i := range int64(100_000) {
		e := entry(uint64(i))

		hs, err := tlog.StoredHashes(i, e[:], read)
		must(t, err)

		stored = append(stored, hs...)
		f.Append(e)
	}

	want, err := tlog.TreeHash(100_000, read)
	if err != nil || f.Root() != directory.Hash(want) {
		t.Errorf("the root is %s, want %s (%v)", f.Root(), directory.Hash(want), err)
	}

	if len(f.Edges) > 17 {
		t.Errorf("a frontier of 100,000 entries has %d hashes", len(f.Edges))
	}
}

// Requirement: LOG-001, LOG-002
func TestTilesAndBundlesAreThoseOfC2SP(t *testing.T) {
	const size = 70_000

	log, all, tree := open(t, t.TempDir()), entries(0, size), treeOf(size)
	reset(t, log, ledger.Tree{})
	log.Append(all...)

	for _, c := range []struct {
		level int
		n     uint64
		width int
	}{{0, 0, 256}, {0, 0, 1}, {0, 273, 112}, {0, 273, 3}, {1, 0, 256}, {1, 1, 17}, {2, 0, 1}} {
		tile, err := log.Tile(tree, c.level, c.n, c.width)
		if err != nil || len(tile) != 32*c.width {
			t.Fatalf("%+v: %d bytes, %v", c, len(tile), err)
		}

		span := 1 << (8 * c.level)
		for i := range c.width {
			first := (int(c.n)*256 + i) * span
			if got := tlog.Hash(tile[32*i:][:32]); got != naive(all[first:first+span]) {
				t.Fatalf("%+v: hash %d is %s", c, i, got)
			}
		}
	}

	bundle, err := log.Bundle(tree, 273, 112)
	if err != nil || len(bundle) != 112*35 {
		t.Fatalf("%d bytes, %v", len(bundle), err)
	}

	for i := range 112 {
		e := all[273*256+i]
		if got := bundle[35*i:][:35]; got[0] != 0 || got[1] != 33 || !slices.Equal(got[2:], e[:]) {
			t.Fatalf("entry %d of the bundle is %x", i, got)
		}
	}

	for _, c := range []struct {
		level int
		n     uint64
		width int
	}{{0, 273, 113}, {0, 274, 1}, {1, 1, 18}, {2, 0, 2}, {3, 0, 1}, {0, 0, 0}, {0, 0, 257}, {-1, 0, 1}, {9, 0, 1},
		{0, 1 << 60, 1}} {
		if _, err := log.Tile(tree, c.level, c.n, c.width); !errors.Is(err, ledger.ErrNoTile) {
			t.Errorf("tile %+v: %v, want none", c, err)
		}
	}

	if _, err := log.Bundle(tree, 273, 113); !errors.Is(err, ledger.ErrNoTile) {
		t.Errorf("a bundle of more entries than there are: %v", err)
	}
}

// Requirement: MESH-020, MESH-021
func TestProofsHoldAtEverySize(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	log := open(t, t.TempDir())
	reset(t, log, ledger.Tree{})

	var f ledger.Frontier

	trees := []ledger.Tree{{Root: f.Root()}}

	for size := uint64(1); size <= 1500; size++ {
		log.Append(entry(size - 1))
		f.Append(entry(size - 1))

		tree := ledger.Tree{Size: size, Root: f.Root()}
		trees = append(trees, tree)

		first, old := uint64(0), 1+random.Uint64N(size)
		if size > 300 { // of the larger trees one entry each
			first = random.Uint64N(size)
		}

		for index := first; index == first || size <= 300 && index < size; index++ {
			path, err := log.Prove(tree, index)
			if err != nil || tlog.CheckRecord(hashes(path), int64(size), tlog.Hash(tree.Root), int64(index),
				tlog.Hash(entry(index).Hash())) != nil {
				t.Fatalf("entry %d of %d: %v", index, size, err)
			}
		}

		proof, err := log.Consistency(tree, old)
		if err != nil || old < size && tlog.CheckTree(hashes(proof), int64(size), tlog.Hash(tree.Root), int64(old),
			tlog.Hash(trees[old].Root)) != nil {
			t.Fatalf("%d to %d: %v", old, size, err)
		}

		if root, err := log.Root(tree, old); err != nil || root != trees[old].Root {
			t.Fatalf("root of %d in %d: %s, %v", old, size, root, err)
		}
	}

	if _, err := log.Prove(trees[1500], 1500); !errors.Is(err, ledger.ErrNoTile) {
		t.Errorf("an entry behind the tree: %v", err)
	}

	if _, err := log.Consistency(trees[10], 11); !errors.Is(err, ledger.ErrNoTile) {
		t.Errorf("a tree larger than the new one: %v", err)
	}
}

func hashes(path []directory.Hash) (hs []tlog.Hash) {
	for _, h := range path {
		hs = append(hs, tlog.Hash(h))
	}

	return hs
}

// A log goes on behind any tree that it had, whether or not what came after was written.
func TestALogGoesOnAfterARestart(t *testing.T) {
	for _, size := range []uint64{0, 1, 15, 16, 17, 255, 256, 257, 4095, 4096, 5000} {
		dir := t.TempDir()
		log := open(t, dir)
		reset(t, log, ledger.Tree{})
		log.Append(entries(0, size)...)

		must(t, log.Sync())

		log.Append(entries(size, size+300)...) // part of which gets lost

		must(t, log.Close())

		log = open(t, dir)
		reset(t, log, treeOf(size))

		if from, missing := log.Missing(); missing {
			t.Fatalf("after %d entries those from %d on are missing", size, from)
		}

		log.Append(entries(size, size+100)...)

		if _, err := log.Prove(treeOf(size+100), size+99); err != nil {
			t.Errorf("after a restart with %d entries: %v", size, err)
		}
	}
}

// A start reads no entry, and no hash of a full tile: it goes on although all of those are damaged.
//
// Requirement: LOG-022
func TestAStartReadsNoFullTile(t *testing.T) {
	const size = 16*ledger.TileWidth + 5

	dir := t.TempDir()
	log := open(t, dir)
	reset(t, log, ledger.Tree{})
	log.Append(entries(0, size)...)

	must(t, errors.Join(log.Sync(), log.Close()))

	for file, full := range map[string]int64{"entries": size * 35, "level-0": (size - 5) * 32} {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_RDWR, 0)
		must(t, err)

		if _, err := f.WriteAt(make([]byte, full), 0); err != nil {
			t.Fatal(err)
		}

		_ = f.Close()
	}

	log = open(t, dir)
	reset(t, log, treeOf(size))

	if from, missing := log.Missing(); missing {
		t.Errorf("entries from %d on are missing", from)
	}
}

// Requirement: LOG-004
func TestALogIsFilledFromElsewhere(t *testing.T) {
	sibling := func(index uint64) ([]ledger.Entry, error) { return entries(index, index+700), nil }
	liar := func(index uint64) ([]ledger.Entry, error) { return entries(index+1, index+300), nil }

	for _, had := range []uint64{0, 1, 100, 1000} {
		log := open(t, t.TempDir())
		reset(t, log, ledger.Tree{})
		log.Append(entries(0, had)...)
		reset(t, log, treeOf(2000)) // a snapshot of the leader

		if from, missing := log.Missing(); !missing || from != had {
			t.Fatalf("missing from %d on (%t), want from %d", from, missing, had)
		}

		log.Append(entries(2000, 2100)...)

		if _, err := log.Prove(treeOf(2100), 3); !errors.Is(err, ledger.ErrIncomplete) {
			t.Errorf("a proof of an incomplete log: %v", err)
		}

		if err := log.Fill(treeOf(2050), liar); !errors.Is(err, ledger.ErrOther) {
			t.Errorf("entries of another log: %v", err)
		}

		if _, missing := log.Missing(); !missing {
			t.Fatal("entries of another log are kept")
		}

		must(t, log.Fill(treeOf(2050), sibling))

		log.Append(entries(2100, 2200)...)

		if _, err := log.Prove(treeOf(2200), had); err != nil {
			t.Errorf("after filling from %d on: %v", had, err)
		}
	}
}

// A lost or short column is made anew from the entries.
//
// Requirement: LOG-004
func TestAMissingColumnIsMadeFromTheEntries(t *testing.T) {
	for name, lose := range map[string]func(file string) error{
		"lost": os.Remove, "short": func(file string) error { return os.Truncate(file, 96) },
	} {
		dir := t.TempDir()
		log := open(t, dir)
		reset(t, log, ledger.Tree{})
		log.Append(entries(0, 3000)...)

		must(t, errors.Join(log.Sync(), log.Close(), lose(filepath.Join(dir, "level-1"))))

		log = open(t, dir)
		reset(t, log, treeOf(3000))

		if _, err := log.Prove(treeOf(3000), 2000); !errors.Is(err, ledger.ErrIncomplete) {
			t.Errorf("%s: proven without a column: %v", name, err)
		}

		if err := log.Fill(treeOf(3000), log.Local); err != nil {
			t.Fatal(name, err)
		}

		if _, err := log.Prove(treeOf(3000), 2000); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A member that is alone in its domain has no other source than its own file.
//
// Requirement: LOG-004
func TestALogIsFilledFromItselfAfterAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	reset(t, log, ledger.Tree{})

	// The 16th entry completes the first hash of this level, whose file can't be opened.
	level := filepath.Join(dir, "level-2")
	must(t, os.Mkdir(level, 0o700))

	log.Append(entries(0, 20)...)

	if from, missing := log.Missing(); !missing || from != 15 {
		t.Fatalf("missing from %d on (%t), want from 15", from, missing)
	}

	must(t, os.Remove(level))

	must(t, log.Fill(treeOf(20), log.Local))

	if _, err := log.Prove(treeOf(20), 3); err != nil {
		t.Error(err)
	}

	if err := log.Sync(); err != nil {
		t.Errorf("the failure of a write outlives its repair: %v", err)
	}

	// The column of the next level can't be opened, either. A reset takes another tree, without the entry.
	level = filepath.Join(dir, "level-3")
	must(t, os.Mkdir(level, 0o700))

	log.Append(entries(20, 64)...)

	if err := log.Sync(); err == nil {
		t.Error("synced, and an entry could not be written")
	}

	reset(t, log, treeOf(20))

	if err := log.Sync(); err != nil {
		t.Errorf("the failure of a write outlives a reset: %v", err)
	}
}

// Requirement: LOG-004
func TestWhatIsDamagedIsNotServed(t *testing.T) {
	for _, file := range []string{"entries", "level-0", "level-1", "level-2", "level-4"} {
		dir := t.TempDir()
		log := open(t, dir)
		reset(t, log, ledger.Tree{})
		log.Append(entries(0, 3000)...)

		must(t, log.Sync())

		f, err := os.OpenFile(filepath.Join(dir, file), os.O_RDWR, 0)
		must(t, err)

		if _, err := f.WriteAt([]byte("damaged"), 67); err != nil {
			t.Fatal(err)
		}

		_ = f.Close()
		tree := treeOf(3000)

		_, tile := log.Tile(tree, 0, 0, 256)
		if file == "level-4" { // of no tile of level 0 but through the root
			_, tile = log.Tile(tree, 1, 0, 11)
		}

		_, bundle := log.Bundle(tree, 0, 256)
		if !errors.Is(bundle, ledger.ErrIncomplete) || file != "entries" && !errors.Is(tile, ledger.ErrIncomplete) {
			t.Errorf("%s: tile %v, bundle %v", file, tile, bundle)
		}

		err = log.Fill(tree, log.Local)
		if file == "entries" {
			if err == nil {
				t.Error("filled from damaged entries")
			}

			err = log.Fill(tree, func(at uint64) ([]ledger.Entry, error) { return entries(at, at+256), nil })
		}

		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		if _, err := log.Bundle(tree, 0, 256); err != nil {
			t.Errorf("%s, after it was filled: %v", file, err)
		}
	}
}

// A reader may know a newer tree than this member has applied.
func TestATreeThatIsAheadDamagesNothing(t *testing.T) {
	log := open(t, t.TempDir())
	reset(t, log, ledger.Tree{})
	log.Append(entries(0, 300)...)

	if _, err := log.Prove(treeOf(400), 350); !errors.Is(err, ledger.ErrIncomplete) {
		t.Errorf("of an entry that is not here: %v", err)
	}

	if from, missing := log.Missing(); missing {
		t.Errorf("from %d on, entries are missing", from)
	}
}

// start returns the start of an epoch whose former one, the number before it, ended with a tree.
func start(epoch uint64, last ledger.Tree) *ledger.Start {
	return &ledger.Start{Domain: spiffeid.RequireTrustDomainFromString("alpha.test"), Epoch: epoch, Former: epoch - 1,
		Size: last.Size, Root: last.Root, Restored: 7, Reason: "a test"}
}

// The payload of an epoch's first entry is there for whoever checks that entry. One that the entry does not have is
// neither served nor kept, and a lost one is taken from elsewhere.
//
// Requirement: LOG-019, LOG-004
func TestTheStartOfAnEpochIsKept(t *testing.T) {
	dir := t.TempDir()
	epochs := ledger.OpenEpochs(dir)

	defer epochs.Close()

	begun := start(2000, treeOf(300))
	must(t, epochs.Begin(begun))

	epochs.Append(ledger.EntryOf(ledger.Epoch, begun.Payload()))
	epochs.Append(entries(1, 300)...)

	served := func(when string) {
		t.Helper()

		payload, err := epochs.Start(2000)
		if err != nil || !bytes.Equal(payload, begun.Payload()) {
			t.Fatalf("%s: %s, %v", when, payload, err)
		}

		if read, err := ledger.ParseStart(payload); err != nil || *read != *begun {
			t.Fatalf("%s: %+v, %v", when, read, err)
		}
	}
	served("begun")
	must(t, epochs.Sync())
	served("synced")

	file, other := filepath.Join(dir, "2000", "start.json"), start(2000, treeOf(299))

	for name, lose := range map[string]func() error{
		"damaged": func() error { return os.WriteFile(file, other.Payload(), 0o600) },
		"lost":    func() error { return os.RemoveAll(file) },
	} {
		must(t, lose())

		if payload, err := epochs.Start(2000); !errors.Is(err, ledger.ErrIncomplete) {
			t.Errorf("%s: %s, %v", name, payload, err)
		}
	}

	if err := epochs.KeepStart(2000, other.Payload()); !errors.Is(err, ledger.ErrIncomplete) {
		t.Errorf("kept one of another entry: %v", err)
	}

	must(t, epochs.KeepStart(2000, begun.Payload()))

	served("kept again")
}

// A start leads back to an earlier epoch, so no chain of them is without an end.
func TestAStartNamesAnEarlierEpoch(t *testing.T) {
	for former, valid := range map[uint64]bool{0: true, 6: true, 7: false, 8: false} {
		s := start(7, ledger.Tree{})
		s.Former = former

		if read, err := ledger.ParseStart(s.Payload()); (err == nil) != valid || valid && *read != *s {
			t.Errorf("after %d: %+v, %v", former, read, err)
		}
	}

	for _, text := range []string{
		``, `{}`, `{"iss":"spiffe://alpha.test","epoch":7,"old":"beta.test/roster/6"}`,
		`{"iss":"spiffe://alpha.test","epoch":7,"old":"alpha.test/roster/6/"}`,
	} {
		if read, err := ledger.ParseStart([]byte(text)); err == nil {
			t.Errorf("%s is %+v", text, read)
		}
	}
}

// A member that has not seen the end of a former epoch takes it from the start of the next, and lacks its entries.
//
// Requirement: LOG-019
func TestAFormerEpochIsMadeKnown(t *testing.T) {
	epochs := ledger.OpenEpochs(t.TempDir())
	defer epochs.Close()

	// Of epoch 1500, as of one that a restored domain has left, nobody knows the end.
	must(t, errors.Join(epochs.Reset(1500, treeOf(5)), epochs.Reset(2000, treeOf(7)),
		epochs.End(1000, treeOf(300))))

	log, end, err := epochs.Log(1000)
	if err != nil || end == nil || *end != treeOf(300) {
		t.Fatalf("the former log: %v, %v", end, err)
	}

	if lacking := epochs.Lacking(2000); !slices.Equal(lacking, []uint64{2000, 1000}) {
		t.Errorf("lacking are %d", lacking)
	}

	must(t, log.Fill(*end, func(at uint64) ([]ledger.Entry, error) { return entries(at, 300), nil }))

	if _, err := log.Prove(*end, 299); err != nil {
		t.Error(err)
	}
}

// Requirement: LOG-019
func TestAnEndedEpochStaysReadable(t *testing.T) {
	dir := t.TempDir()
	epochs := ledger.OpenEpochs(dir)

	must(t, epochs.Begin(start(1000, ledger.Tree{})))

	epochs.Append(entries(0, 300)...)

	must(t, epochs.Begin(start(2000, treeOf(300))))

	epochs.Append(entries(0, 7)...)

	must(t, errors.Join(epochs.Sync(), epochs.Close()))

	epochs = ledger.OpenEpochs(dir)
	defer epochs.Close()

	must(t, epochs.Reset(2000, treeOf(7)))

	log, end, err := epochs.Log(1000)
	if err != nil || end == nil || *end != treeOf(300) {
		t.Fatalf("the ended log: %v, %v", end, err)
	}

	if _, err := log.Prove(*end, 299); err != nil {
		t.Error(err)
	}

	if log, end, err = epochs.Log(2000); err != nil || end != nil {
		t.Fatalf("the log at hand: %v, %v", end, err)
	}

	if _, err := log.Prove(treeOf(7), 6); err != nil {
		t.Error(err)
	}

	if _, _, err := epochs.Log(1500); !errors.Is(err, ledger.ErrNoTile) {
		t.Errorf("an epoch that never was: %v", err)
	}
}

func TestAnEndedLogThatCantBeReadIsAnErrorEachTime(t *testing.T) {
	dir := t.TempDir()
	epochs := ledger.OpenEpochs(dir)

	began := errors.Join(epochs.Begin(start(1000, ledger.Tree{})), epochs.Begin(start(2000, treeOf(0))), epochs.Sync())
	must(t, errors.Join(began, epochs.Close()))

	epochs = ledger.OpenEpochs(dir)
	defer epochs.Close()

	must(t, epochs.Reset(1000, treeOf(0)))

	log, _, err := epochs.Log(1000)
	must(t, err)

	// The file of the log fails from here on.
	must(t, errors.Join(log.Close(), epochs.Reset(2000, treeOf(0))))

	for call := range 3 {
		if _, _, err := epochs.Log(1000); err == nil {
			t.Errorf("call %d returns a log that can't be read", call)
		}
	}
}

// A second name of the file before shows that its contents were not written over.
func TestTheEndOfAnEpochIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()

	epochs := ledger.OpenEpochs(dir)
	defer epochs.Close()

	must(t, epochs.Begin(start(1000, ledger.Tree{})))

	end, before := filepath.Join(dir, "1000", "end.json"), filepath.Join(dir, "before")
	must(t, errors.Join(os.WriteFile(end, []byte("{}"), 0o600), os.Link(end, before)))

	must(t, errors.Join(epochs.Begin(start(2000, treeOf(0))), epochs.Sync()))

	if text, err := os.ReadFile(before); err != nil || string(text) != "{}" {
		t.Errorf("the file before was written over: %s, %v", text, err)
	}

	if text, err := os.ReadFile(end); err != nil || string(text) == "{}" {
		t.Errorf("the end of the epoch is %s, %v", text, err)
	}
}

func BenchmarkAppend(b *testing.B) {
	log, err := ledger.Open(b.TempDir())
	must(b, err)
	defer log.Close()

	must(b, log.Reset(ledger.Tree{}))

	var f ledger.Frontier

	e := entry(1)
	for b.Loop() {
		f.Append(e)
		log.Append(e)
	}
}

func BenchmarkProve(b *testing.B) {
	const size = 1_000_000

	log, err := ledger.Open(b.TempDir())
	must(b, err)
	defer log.Close()

	must(b, log.Reset(ledger.Tree{}))

	log.Append(entries(0, size)...)

	tree, random := treeOf(size), rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		if _, err := log.Prove(tree, random.Uint64N(size)); err != nil {
			b.Fatal(err)
		}
	}
}

var must = directorytest.Must
