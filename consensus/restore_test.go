package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

func (d *domain) backup(i int) []byte {
	d.t.Helper()

	var b bytes.Buffer
	must(d.t, d.nodes[i].restorer.Backup(d.t.Context(), &b))

	return b.Bytes()
}

func inspect(t testing.TB, b []byte) *backup.Backup {
	t.Helper()

	info, err := backup.Inspect(bytes.NewReader(b))
	must(t, err)

	return info
}

// accepting are the options with which a backup is restored whatever it costs.
func accepting(t testing.TB, file []byte) RestoreOptions {
	t.Helper()

	return RestoreOptions{AcceptLossSince: inspect(t, file).Position.String(), NewEpoch: true}
}

// restore restores a backup at a member, whatever it costs.
func (d *domain) restore(at int, file []byte) {
	d.t.Helper()

	_, err := d.nodes[at].restorer.Restore(d.t.Context(), bytes.NewReader(file), accepting(d.t, file))
	must(d.t, err)
}

// attestAll gives every member a signing key.
func (d *domain) attestAll() {
	d.t.Helper()

	for i, s := range d.nodes {
		key := signed.SigningKey{Public: bytes.Repeat([]byte{byte(i + 1)}, 32), Node: d.members[i].ID,
			Attestations: []string{"a.b.c"}}
		must(d.t, s.Attest(d.t.Context(), key))
	}
}

// A member that starts has the sealed state that was restored, and the epoch that ended it
// is in its log; while no majority runs it waits for a leader, not for that epoch.
func TestWhoStartsAloneAfterARestoreMissesALeader(t *testing.T) {
	inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
		leader, follower := d.leader()

		d.restore(leader, d.backup(leader))

		d.ready()

		for i := range d.nodes {
			d.stop(i)
		}

		d.start(follower)
		time.Sleep(time.Minute)

		if err := d.nodes[follower].Ready(); !errors.Is(err, errNoLeader) {
			t.Errorf("alone it says: %v", err)
		}

		d.start(leader)
		d.ready()
	})
}

// Requirement: MESH-019
func TestABackupIsRestoredIntoANewEpoch(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		d.attestAll()
		leader, follower := d.leader()

		kept := d.register(leader, "kept", 600)

		removed, err := d.nodes[leader].Register(t.Context(), put(t, bob, "removed", 600))
		must(t, err)

		file := d.backup(follower)

		info := inspect(t, file)
		if info.Domain != alpha || info.Registrations != 2 || info.Position != d.nodes[leader].Replica.Position() ||
			len(info.Members) != 3 || info.Node != d.members[follower].ID {
			t.Errorf("the backup says %+v", info)
		}

		if size, root := d.nodes[leader].Replica.Ledger(); info.LedgerSize != size || info.LedgerRoot != root {
			t.Errorf("the backup's ledger is %d %s, want %d %s", info.LedgerSize, info.LedgerRoot, size, root)
		}

		if _, err := d.nodes[leader].Remove(t.Context(),
			directory.RemoveRequest{Caller: directory.Caller{Identity: bob}, RID: removed.RID}); err != nil {
			t.Fatal(err)
		}

		late := d.register(leader, "late", 600)

		before := d.nodes[leader].Replica.Position()
		size, root := d.nodes[leader].Replica.Ledger()

		_, err = d.nodes[follower].restorer.Restore(t.Context(), bytes.NewReader(file), RestoreOptions{})
		problem(t, err, directory.Conflict)

		for _, at := range []directory.Position{info.Position, before} {
			if err != nil && !strings.Contains(err.Error(), at.String()) {
				t.Errorf("%q does not name %s", err, at)
			}
		}

		options := accepting(t, file)
		options.Reason = "a drill"

		done, err := d.nodes[follower].restorer.Restore(t.Context(), bytes.NewReader(file), options)
		must(t, err)

		if done.Backup != info.Position || done.Before != before || done.Registrations != 2 ||
			done.Now.Epoch <= before.Epoch {
			t.Errorf("it did %+v", done)
		}

		d.ready()
		d.settled()

		for i, s := range d.nodes {
			if _, ok := s.cfg.Index.Get(late.RID); ok {
				t.Errorf("node %d shows what the backup lacks", i)
			}

			e, ok := s.cfg.Index.Get(kept.RID)
			if !ok || !e.Unconfirmed {
				t.Errorf("node %d shows %+v, want it unconfirmed", i, e)
			}

			if ds, _, _ := s.Replica.Digests(directory.Mesh, 0, 10); len(ds) != 0 ||
				s.Replica.Tip(directory.Mesh) != 0 {
				t.Errorf("node %d announces %v before its owner has refreshed it", i, ds)
			}

			if doc := s.Replica.KeyDocument(); doc == nil || doc.Epoch != done.Now.Epoch || len(doc.Keys) != 3 {
				t.Errorf("node %d has the key document %+v", i, doc)
			}

			if s.Replica.Position().Revision <= before.Revision {
				t.Errorf("node %d is at %s; revisions went back from %s", i, s.Replica.Position(), before)
			}
		}

		// Leaf 0 says what came before: the ledger that ended, not the backup's.
		reason := lastReason(t, info) + ": a drill"
		began := fmt.Sprintf(`{"v":1,"iss":"spiffe://alpha.test","epoch":%d,"old":"alpha.test/roster/%d",`+
			`"size":%d,"root":"%s","rev":%d,"reason":"%s"}`,
			done.Now.Epoch, before.Epoch, size, root, info.Position.Revision, reason)

		restored := d.commandsOf(0)
		last := restored[len(restored)-1]
		ordered := fmt.Sprintf(`{"v":1,"iss":"spiffe://alpha.test","epoch":%d,"rev":%d,"at":%d,`+
			`"action":"snapshot.restore","target":"","by":"","from":"%s"}`,
			done.Now.Epoch, last.Position.Revision, last.At.Unix(), d.members[follower].ID)

		want := directory.Hash(tlog.NodeHash(tlog.NodeHash(leaf(5, []byte(began)),
			leaf(3, d.nodes[0].Replica.KeyDocument().Payload())), leaf(6, []byte(ordered))))
		if n, r := d.nodes[0].Replica.Ledger(); n != 3 || r != want {
			t.Errorf("the new ledger is %d %s, want 3 %s", n, r, want)
		}

		if got := inspect(t, d.backup(leader)); got.Hash != info.Hash {
			t.Error("the same registrations have another hash after the restore")
		}

		// The owner refreshes, in a list: now it is announced, in the new epoch.
		out, err := d.nodes[follower].RefreshMany(t.Context(), directory.RefreshBatch{
			Caller: directory.Caller{Identity: ada}, Items: []directory.Renewal{{RID: kept.RID}},
		})
		if err != nil || len(out.Each) != 1 || out.Each[0] != (directory.RenewalResult{Granted: 600}) ||
			out.Position != d.nodes[leader].Replica.Position() {
			t.Fatalf("refresh: %+v, %v", out, err)
		}

		d.settled()

		for i, s := range d.nodes {
			if e, _ := s.cfg.Index.Get(kept.RID); e.Unconfirmed {
				t.Errorf("node %d: it is still unconfirmed", i)
			}

			ds, _, _ := s.Replica.Digests(directory.Mesh, 0, 10)
			if len(ds) != 1 || ds[0].RID != kept.RID || ds[0].Op != signed.OpPut {
				t.Fatalf("node %d announces %v", i, ds)
			}

			payload, _, ok := s.Replica.Record(directory.Mesh, ds[0].H, ds[0].M)
			if !ok || !bytes.Contains(payload, fmt.Appendf(nil, `"epoch":%d`, done.Now.Epoch)) {
				t.Errorf("node %d has the record %s", i, payload)
			}
		}

		// What had been removed is back at home only, until its deadline.
		if e, ok := d.nodes[0].cfg.Index.Get(removed.RID); !ok || !e.Unconfirmed {
			t.Errorf("what the backup had: %+v", e)
		}

		d.restore(0, file) // once more

		if at := d.nodes[0].Replica.Position(); at.Epoch <= done.Now.Epoch {
			t.Errorf("the second restore left the epoch at %s", at)
		}

		d.settled()
		d.restart(follower)
		d.equalStates()
	})
}

// restored returns what s would go on with, were it restored from a backup of now, and
// what it has.
func restored(t *testing.T, s *Store) (old, live *state.State) {
	frozen := frozenOf(t, s)
	old, live = valueOf(readSnapshot(bytes.NewReader(frozen), alpha, index.New())), s.Replica.outline()
	old.Succeed(live, "a test", nil)

	return old, live
}

// A leader that ends between the two halves of a restore leaves a sealed domain;
// the next one begins the epoch.
//
// Requirement: MESH-019
func TestTheNextLeaderEndsAHalfDoneRestore(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		d.attestAll()

		d.register(0, "kept", 600)

		d.settled()
		leader, follower := d.leader()
		s := d.nodes[leader]

		old, live := restored(t, s)
		must(t, s.restorer.install(old))

		if s.Replica.KeyDocument() != nil || s.Replica.Position().Epoch != live.History().Position().Epoch {
			t.Error("a sealed domain can sign")
		}

		if _, err := s.terms.leader().proposer.propose(t.Context(), &state.Command{Issue: &state.Issue{}}); err == nil {
			t.Error("a sealed domain takes writes")
		}

		if err := s.restorer.Backup(t.Context(), io.Discard); err == nil {
			t.Error("a sealed domain is backed up")
		}

		must(t, d.nodes[follower].Transfer(t.Context(), d.members[follower].ID))

		d.ready()
		d.settled()

		for i, s := range d.nodes {
			if doc := s.Replica.KeyDocument(); s.Replica.Position().Epoch <= live.History().Position().Epoch ||
				doc == nil || doc.Epoch != s.Replica.Position().Epoch {
				t.Errorf("node %d is at %s with %+v", i, s.Replica.Position(), doc)
			}
		}
	})
}

// A leader that is cut off while it restores has what nobody else has. It shows
// that to nobody as the domain's state, and says what is to be done.
//
// Requirement: MESH-019
func TestARestoreThatNobodyElseHas(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		d.register(0, "kept", 600)

		d.settled()
		leader, follower := d.leader()
		s := d.nodes[leader]
		old, _ := restored(t, s)
		d.net.isolate(d.members[leader].Address)

		if err := s.restorer.install(old); err == nil {
			t.Fatal("a restore that nobody else has succeeded")
		}

		if !s.Replica.isSealed() {
			t.Fatal("it was not restored at all")
		}

		// A leader that is not beyond the restore, or that has ended it by an epoch, is one to follow; and who has
		// restored nothing follows any.
		at := s.Replica.Position()
		for _, leading := range []directory.Position{at, {Epoch: at.Epoch, Revision: at.Revision - 1},
			{Epoch: at.Epoch + 1, Revision: at.Revision + 1}} {
			s.follower.checkSeal(leading)
		}

		d.nodes[follower].follower.checkSeal(directory.Position{Epoch: at.Epoch, Revision: at.Revision + 1000})

		for _, node := range []*Store{s, d.nodes[follower]} {
			select {
			case <-node.Failed():
				t.Fatalf("%s fails: %v", node.cfg.Node, node.Ready())
			default:
			}
		}

		eventually(t, "the others have a leader", func() bool {
			_, err := d.nodes[follower].Register(t.Context(), put(t, ada, "since", 600))
			return err == nil
		})
		d.net.heal(d.members[leader].Address)
		eventually(t, "it says that it cannot go on", func() bool {
			if s.Ready() == nil || s.reader.Linearize(t.Context()) == nil {
				t.Fatal("it takes its own restore for the domain's state")
			}

			select {
			case <-s.Failed():
				return errors.Is(s.Ready(), errLoneRestore)
			default:
				return false
			}
		})
		d.stop(leader)

		must(t, os.RemoveAll(s.cfg.Dir))

		d.start(leader)
		d.letIn(leader)
		d.ready()
		d.equalStates()
	})
}

// Requirement: MESH-019
func TestWhatIsNotRestored(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		d.register(0, "kept", 600)

		file := d.backup(0)
		options := accepting(t, file)
		try := func(b []byte) error {
			_, err := d.nodes[0].restorer.Restore(t.Context(), bytes.NewReader(b), options)
			return err
		}
		before := d.nodes[0].Replica.Position()
		problem(t, try(nil), directory.BadRequest)
		problem(t, try(file[:len(file)-1]), directory.BadRequest)

		for at := 0; at < len(file); at += 7 {
			bad := bytes.Clone(file)
			bad[at] ^= 1
			problem(t, try(bad), directory.BadRequest)
		}

		var foreign bytes.Buffer

		other := began(t, beta, before.Epoch+1)
		header := backup.Header{Version: backup.Version, Node: valueOf(alphaNode("n0")), Taken: 1}
		must(t, backup.Write(&foreign, header, other.Snapshot()))

		err := try(foreign.Bytes())
		problem(t, err, directory.Conflict)

		if err != nil && err.Error() != "the backup is of beta.test; this is alpha.test" {
			t.Errorf("it says %q", err)
		}

		other = began(t, alpha, uint64(time.Now().Unix()+3600))
		foreign.Reset()

		must(t, backup.Write(&foreign, header, other.Snapshot()))

		problem(t, try(foreign.Bytes()), directory.Conflict)

		if d.nodes[0].Replica.Position() != before {
			t.Errorf("a refusal changed something: %s, %s", before, d.nodes[0].Replica.Position())
		}

		left, _ := filepath.Glob(filepath.Join(d.nodes[0].cfg.Dir, "restore-*"))
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// A backup goes into a new domain of the same name, as after the loss of all
// nodes: what the backup's domain had agreed with peers is back.
func TestABackupFillsANewDomain(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		must(t, d.nodes[0].SetPeering(t.Context(),
			directory.Peering{Domain: beta, State: directory.PeeringActive, Mesh: true}))

		d.register(0, "kept", 600)

		d.setPolicy(t.Context(), 0, "the backup's")

		file := d.backup(0)
		d.close()

		var told sync.Map // by node: the policy
		e := newDomain(t, 3, func(c *Config) {
			c.clock = func() time.Time { return time.Now().Add(2 * time.Second) }
			node := c.Node
			c.Policy = func(text []byte, _ uint64) { told.Store(node, string(text)) }
		})
		e.ready()

		done, err := e.nodes[0].restorer.Restore(t.Context(), bytes.NewReader(file), accepting(t, file))
		must(t, err)

		e.settled()

		if len(e.nodes[1].Replica.Peerings()) != 1 || e.nodes[2].cfg.Index.Len() != 1 ||
			done.Now.Epoch <= done.Before.Epoch {
			t.Errorf("restored %+v: peerings %v, %d registrations", done, e.nodes[1].Replica.Peerings(),
				e.nodes[2].cfg.Index.Len())
		}

		for i, want := range []string{"the backup's", "another"} {
			for _, m := range e.members {
				if got, _ := told.Load(m.ID); got != want {
					t.Errorf("restored %d times, %s has the policy %v, want %q", i+1, m.ID, got, want)
				}
			}

			if i == 0 {
				e.setPolicy(t.Context(), 0, "another")

				e.restore(0, file)

				e.settled()
			}
		}
	})
}

// A backup is inspected as it arrives, in pieces of any size, and nothing is said of one
// that is cut off, changed or can't be read.
func TestABackupIsInspectedAsAStream(t *testing.T) {
	s := kept(t)

	var file bytes.Buffer

	header := backup.Header{Version: backup.Version, Node: valueOf(alphaNode("n0")), Taken: 1}
	must(t, backup.Write(&file, header, s.Snapshot()))

	whole := file.Bytes()

	want := inspect(t, whole)
	if want.Size != int64(len(whole)) || want.Registrations != 1 {
		t.Errorf("%+v of %d bytes", want, len(whole))
	}

	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader, "data with the end": iotest.DataErrReader,
	} {
		got, err := backup.Inspect(wrap(bytes.NewReader(whole)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}

	for i := range whole {
		mutant := bytes.Clone(whole)

		mutant[i] ^= 0x20
		if info, err := backup.Inspect(bytes.NewReader(mutant)); !errors.Is(err, backup.ErrUnusable) || info != nil {
			t.Fatalf("byte %d changed: %+v, %v", i, info, err)
		}

		if info, err := backup.Inspect(bytes.NewReader(whole[:i])); !errors.Is(err, backup.ErrUnusable) || info != nil {
			t.Fatalf("cut to %d bytes: %+v, %v", i, info, err)
		}
	}

	broken := errors.New("the disk is gone")

	unreadable := io.MultiReader(bytes.NewReader(whole[:100]), iotest.ErrReader(broken))
	if _, err := backup.Inspect(unreadable); !errors.Is(err, broken) || errors.Is(err, backup.ErrUnusable) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func FuzzInspectBackup(f *testing.F) {
	s := kept(f)

	var b bytes.Buffer
	if err := backup.Write(&b, backup.Header{Version: backup.Version, Node: valueOf(alphaNode("n0")), Taken: 1},
		s.Snapshot()); err != nil {
		f.Fatal(err)
	}

	f.Add(b.Bytes()[:b.Len()-32])
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := directory.HashOf(body)
		file := append(bytes.Clone(body), sum[:]...)

		info, err := backup.Inspect(bytes.NewReader(file))
		if err == nil && info.Domain.IsZero() {
			t.Error("a backup of no domain")
		}

		if _, items, err := backup.Open(bytes.NewReader(file), int64(len(file))); err == nil {
			_, _ = readSnapshot(items, alpha, index.New())
		}
	})
}

// A backup of another domain of the same name, such as one for trying out, is of an
// epoch that this one was never in. It comes in the place of what is registered here
// only by force, even if its epoch is the later one.
func TestABackupOfAnotherHistoryIsNotRestoredByMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		production := newDomain(t, 1, nil)
		production.ready()

		_, err := production.nodes[0].Register(t.Context(), put(t, ada, "kept", 600))
		must(t, err)

		time.Sleep(2 * time.Second)
		trial := newDomain(t, 1, nil)
		trial.ready()
		file := trial.backup(0)
		_, err = production.nodes[0].restorer.Restore(t.Context(), bytes.NewReader(file), RestoreOptions{})
		problem(t, err, directory.Conflict)

		if n := production.nodes[0].cfg.Index.Len(); n != 1 {
			t.Errorf("%d registrations are left", n)
		}

		production.restore(0, file)
	})
}

// leaf is the hash of a ledger's leaf of that type.
func leaf(kind byte, payload []byte) tlog.Hash {
	digest := directory.HashOf(payload)

	return tlog.RecordHash(append([]byte{kind}, digest[:]...))
}

// began returns the state of a domain whose history has just begun.
func began(t testing.TB, domain spiffeid.TrustDomain, at uint64) *state.State {
	t.Helper()
	s := state.New(domain, index.New())

	entry := &state.Batch{Version: state.FirstVersion, Time: 1793491200000,
		Commands: []state.Command{{Epoch: &state.Epoch{Epoch: at, Reason: "bootstrap"}}}}
	if results, err := s.Apply(entry); err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}

	return s
}

// kept returns a state with one registration.
func kept(t testing.TB) *state.State {
	t.Helper()
	s := began(t, alpha, 1793491200)
	doc := document(t, "kept")

	entry := &state.Batch{Version: state.FirstVersion, Time: 1793491203000,
		Commands: []state.Command{{Register: &state.Register{
			Format: signed.StatementFormat, RID: directory.NewRID(1793491200000, [10]byte{1}), Salt: signed.Salt{1},
			Caller: ada, Agent: "kept", Kind: doc.Kind(), Document: doc.Bytes(), Lifetime: 600,
			Granted: state.Granted{Owner: ada},
		}}}}
	if results, err := s.Apply(entry); err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}

	return s
}

// lastReason is what a restore says of the backup that it restores.
func lastReason(t testing.TB, b *backup.Backup) string {
	t.Helper()

	return fmt.Sprintf("restore of a backup that %s took at %s at position %s of alpha.test, ledger size %d, root %s",
		b.Node, b.Taken.UTC().Format(time.RFC3339), b.Position, b.LedgerSize, b.LedgerRoot)
}
