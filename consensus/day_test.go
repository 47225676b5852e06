package consensus

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

// slowTiming is fit for a day of virtual time: a heartbeat costs as much as in real time.
var slowTiming = Timing{
	Heartbeat: time.Minute, Election: time.Minute, Lease: 30 * time.Second, Sweep: 20 * time.Second,
	Write: 10 * time.Minute, Presence: 30 * time.Second, Commit: 5 * time.Second, SnapshotEvery: 1 << 30,
	SnapshotBytes: 1 << 40,
}

// A day is the work of a domain's agents and operators, by chance.
type day struct {
	*domain
	random *rand.Rand
	rids   []directory.RID
}

// step makes one change at one of the members. A refusal is a part of the log, too.
func (d *day) step(i int) error {
	ctx := d.t.Context()
	s := d.nodes[d.random.IntN(len(d.nodes))]
	who := directory.Caller{Identity: []directory.Identity{ada, bob}[d.random.IntN(2)]}
	lifetime := []uint32{60, 600, 3600, 4 * 3600}[d.random.IntN(4)]

	var rid directory.RID
	if len(d.rids) > 0 {
		rid = d.rids[d.random.IntN(len(d.rids))]
	}

	switch d.random.IntN(12) {
	case 0, 1, 2:
		return d.register(s, put(d.t, who.Identity, fmt.Sprint("agent-", d.random.IntN(40)), lifetime))
	case 3:
		r := put(d.t, who.Identity, fmt.Sprint("peers-", i), lifetime)
		r.Visibility = directory.Visibility{}

		return d.register(s, r)
	case 4:
		_, err := s.Refresh(ctx, directory.RefreshRequest{Caller: who, RID: rid, Lifetime: lifetime})
		return err
	case 5:
		patch := fmt.Appendf(nil, `{"base":"https://ada.alpha.test/%d"}`, i)
		_, err := s.Refresh(ctx, directory.RefreshRequest{Caller: who, RID: rid, Patch: patch})

		return err
	case 6:
		var items []directory.Renewal
		for range min(5, len(d.rids)) {
			items = append(items, directory.Renewal{RID: d.rids[d.random.IntN(len(d.rids))], Lifetime: lifetime})
		}

		if len(items) == 0 {
			return nil
		}

		_, err := s.RefreshMany(ctx, directory.RefreshBatch{Caller: who, Items: items})

		return err
	case 7:
		_, err := s.Remove(ctx, directory.RemoveRequest{Caller: who, RID: rid})
		return err
	case 8:
		return d.operate(s, i)
	case 9:
		return d.claim(s, i)
	case 10:
		return s.Spend(ctx, directory.HashOf(fmt.Append(nil, i/2)), time.Now().Add(time.Hour).Unix())
	default:
		_, err := s.TransferOwner(ctx, directory.TransferRequest{
			Caller: who, RID: rid, Step: directory.TransferForce, To: ada,
		})

		return err
	}
}

func (d *day) register(s *Store, r directory.RegisterRequest) error {
	out, err := s.Register(d.t.Context(), r)
	if err == nil && !slices.Contains(d.rids, out.RID) {
		d.rids = append(d.rids, out.RID)
	}

	return err
}

// operate is an operator's change.
func (d *day) operate(s *Store, i int) error {
	ctx := d.t.Context()

	switch d.random.IntN(6) {
	case 0:
		states := []directory.PeeringState{
			directory.PeeringActive, directory.PeeringFrozen, directory.PeeringTerminated,
		}

		return s.SetPeering(ctx, directory.Peering{Domain: beta, State: states[d.random.IntN(3)],
			Bundle: fmt.Appendf(nil, `{"keys":[],"sequence":%d}`, i), Mesh: d.random.IntN(2) == 0})
	case 1:
		_, err := s.SetPolicy(ctx, fmt.Appendf(nil, "// %d\npermit (principal, action, resource);", i), nil)
		return err
	case 2:
		seed := sha256.Sum256(fmt.Append(nil, "signing key ", i))
		public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)

		return s.Attest(ctx, signed.SigningKey{Public: public, Node: s.cfg.Node, Attestations: []string{"a.b.c"}})
	case 3:
		return s.Revoke(ctx, directory.HashOf(fmt.Append(nil, i)).String())
	case 4:
		s.SetRules(Rules{PerOwner: uint32(20 + d.random.IntN(40)), Hold: uint32(d.random.IntN(2) * 600)})
		return nil
	default:
		id := spiffeid.RequireFromString(fmt.Sprint("spiffe://alpha.test/roster/node/new-", i))
		return s.Admit(ctx, Admission{ID: id})
	}
}

func (d *day) claim(s *Store, i int) error {
	key, holder := directory.HashOf(fmt.Append(nil, i%7)), directory.HashOf(fmt.Append(nil, "holder ", i))

	if _, err := s.Claim(d.t.Context(), directory.Claim{
		Key: key, Caller: directory.HashOf(nil), Body: directory.HashOf(nil), Holder: holder, Lease: 60, Window: 3600,
	}); err != nil {
		return err
	}

	return s.Settle(d.t.Context(), directory.Settlement{Key: key, Holder: holder, Release: i%3 == 0,
		Answer: &directory.StoredAnswer{Status: 200, ContentType: "application/json", Body: []byte("{}")}})
}

// liveADay returns the log entries that the leaders of a domain wrote in 24 hours, in the
// versions that the previous release reads. The leadership changes every two hours.
func liveADay(t *testing.T, seed uint64) (log [][]byte) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		d := &day{random: rand.New(rand.NewPCG(seed, 0))}
		d.domain = newDomain(t, 3, func(c *Config) {
			c.Timing = slowTiming
			c.reads = older()
		})
		d.lead(0)

		refused := map[directory.Problem]int{}
		began := time.Now()

		for i := 0; time.Since(began) < 24*time.Hour; i++ {
			if i%120 == 119 {
				d.lead(i / 120 % len(d.nodes))
			}

			if err := d.step(i); err != nil {
				refused[directory.ProblemOf(err)]++
			}

			time.Sleep(time.Duration(d.random.IntN(int(2*time.Minute - 2*slowTiming.Commit))))
		}

		t.Logf("refused: %v", refused)
		d.equalStates()

		leader, _ := d.leader()
		logs := d.nodes[leader].storage.disk.Logs
		first, last := valueOf(logs.FirstIndex()), valueOf(logs.LastIndex())

		if first != 1 {
			t.Fatalf("the log begins at %d", first)
		}

		for at := first; at <= last; at++ {
			var entry raft.Log
			must(t, logs.GetLog(at, &entry))

			if entry.Type == raft.LogCommand {
				log = append(log, entry.Data)
			}
		}
	})

	return log
}

// lead has a member lead.
func (d *day) lead(i int) {
	d.t.Helper()

	end := time.Now().Add(time.Hour)
	for !d.nodes[i].IsLeader() {
		err := d.nodes[i].Transfer(d.t.Context(), d.members[i].ID)
		if time.Now().After(end) {
			d.t.Fatalf("node %d doesn't lead: %v", i, err)
		}

		time.Sleep(time.Second)
	}
}

// applyDay applies a log and returns a line for every 50 entries, and one for all: their number,
// the size and the root of the ledger, the hash of the state, and a hash of all sizes and roots so
// far.
func applyDay(t *testing.T, log [][]byte) (lines []string) {
	t.Helper()

	s := state.New(alpha, index.New())
	seen := sha256.New()
	say := func(n int) {
		size, root := s.History().Ledger()
		hash := sha256.Sum256(freeze(t, s))
		lines = append(lines, fmt.Sprintf("%d %d %s %x %x", n, size, root, hash, seen.Sum(nil)))
	}

	for i, entry := range log {
		batch, err := state.DecodeBatch(entry)
		must(t, err)

		_, err = s.Apply(batch)
		must(t, err)

		size, root := s.History().Ledger()
		_, _ = fmt.Fprintf(seen, "%d %d %s\n", i+1, size, root)

		if (i+1)%50 == 0 {
			say(i + 1)
		}
	}

	say(len(log))

	return lines
}

// applyDayByPrevious is applyDay by a test program of the commit that scenarios/compat/previous
// names.
func applyDayByPrevious(t *testing.T, log [][]byte) (lines []string) {
	t.Helper()

	dir := t.TempDir()
	commit := strings.TrimSpace(string(valueOf(os.ReadFile("../scenarios/compat/previous"))))
	archive := exec.Command("git", "-C", "..", "archive", "--format=tar", commit)
	extract := exec.Command("tar", "-x", "-C", dir)
	extract.Stdin = valueOf(archive.StdoutPipe())

	if err := errors.Join(archive.Start(), extract.Run(), archive.Wait()); err != nil {
		t.Fatalf("extract %s: %v", commit, err)
	}

	program := valueOf(os.ReadFile("testdata/previous_apply.go.txt"))
	file := filepath.Join(dir, "day.hex")

	var text bytes.Buffer
	for _, entry := range log {
		fmt.Fprintln(&text, hex.EncodeToString(entry))
	}

	must(t, errors.Join(os.WriteFile(filepath.Join(dir, "consensus", "previous_apply_test.go"), program, 0o600),
		os.WriteFile(file, text.Bytes(), 0o600)))

	// The program stands alone, so that the other tests need no compilation.
	tests := valueOf(filepath.Glob(filepath.Join(dir, "consensus", "*_test.go")))
	if len(tests) == 0 {
		t.Fatalf("%s has no tests of consensus", commit)
	}

	for _, test := range tests {
		if filepath.Base(test) != "previous_apply_test.go" {
			must(t, os.Remove(test))
		}
	}

	run := exec.Command("go", "test", "-trimpath", "-count", "1", "-v", "-run", "TestApplyTheLogOfADay", "./consensus")
	run.Dir = dir
	run.Env = append(os.Environ(), "ROSTER_DAY="+file)

	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("the test program of %s: %v\n%s", commit, err, out)
	}

	for line := range strings.Lines(string(out)) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "day: "); ok {
			lines = append(lines, said)
		}
	}

	return lines
}

// The golden log is one of liveADay, and its lines are those that the previous release printed.
const (
	dayLog   = "testdata/day-1.log.gz"
	dayLines = "testdata/day-1.golden"
)

// The log of 24 virtual hours, written in the versions that the previous release reads, makes the
// same states and the same ledgers as in that release. STORY_LONG=1 applies it by a test program
// of the previous release, and another day's log, too; the last entry is in the next version.
// With -update it also writes the golden log anew.
//
// Requirement: OPS-012
func TestTheLogOfADayMakesTheStatesOfThePreviousRelease(t *testing.T) {
	long := os.Getenv("STORY_LONG") != ""
	if *updateGolden && long {
		writeDay(t)
	}

	packed := valueOf(gzip.NewReader(bytes.NewReader(valueOf(os.ReadFile(dayLog)))))

	var log [][]byte
	for line := range strings.Lines(string(valueOf(io.ReadAll(packed)))) {
		log = append(log, valueOf(hex.DecodeString(strings.TrimSpace(line))))
	}

	golden := strings.Split(strings.TrimSpace(string(valueOf(os.ReadFile(dayLines)))), "\n")
	equalLines(t, golden, applyDay(t, log))

	first, last := valueOf(state.DecodeBatch(log[0])), valueOf(state.DecodeBatch(log[len(log)-1]))
	took := time.Duration(last.Time-first.Time) * time.Millisecond
	t.Logf("%d entries in %s: %s", len(log), took, golden[len(golden)-1])

	if took < 23*time.Hour {
		t.Errorf("the log is of %s", took)
	}

	if !long {
		return
	}

	newer := valueOf(state.EncodeBatch(older().Log+1, last.Time, nil))
	refused := fmt.Sprintf("refused: a log entry has version %d and this release reads versions up to %d: %s",
		older().Log+1, older().Log, state.ErrNewer)

	for _, log := range [][][]byte{log, liveADay(t, 2)} {
		want := applyDay(t, log)
		want = slices.Insert(want, len(want)-1, refused)
		equalLines(t, applyDayByPrevious(t, append(log, newer)), want)
	}
}

// equalLines fails at the first line that differs.
func equalLines(t *testing.T, previous, this []string) {
	t.Helper()

	for i, line := range this {
		if i >= len(previous) || line != previous[i] {
			t.Fatalf("line %d is %q; the previous release says %q", i+1, line, previous[min(i, len(previous)-1)])
		}
	}

	if len(previous) != len(this) {
		t.Errorf("the previous release says %d lines, this one %d", len(previous), len(this))
	}
}

// writeDay writes the golden log of a day, with the lines that the previous release prints.
func writeDay(t *testing.T) {
	t.Helper()

	var packed bytes.Buffer

	log := liveADay(t, 1)
	w := gzip.NewWriter(&packed)

	for _, entry := range log {
		_, err := fmt.Fprintln(w, hex.EncodeToString(entry))
		must(t, err)
	}

	must(t, errors.Join(w.Close(), os.WriteFile(dayLog, packed.Bytes(), 0o644), os.WriteFile(dayLines,
		[]byte(strings.Join(applyDayByPrevious(t, log), "\n")+"\n"), 0o644)))
}
