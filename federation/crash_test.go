//go:build linux

package federation

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// crashDir is where TestAcceptingUntilKilled works, which another process starts.
const crashDir = "ROSTER_CRASH_DIR"

// A chronicle is what a node was told, on disk: for each stream and watermark what
// there is to be held.
type chronicle struct{ dir string }

func (c chronicle) file(id store.StreamID, mark uint64) string {
	return filepath.Join(c.dir, fmt.Sprintf("%s.%d.%d", id.Audience, id.Epoch, mark))
}

// write notes what a stream lists now, up to limit digests.
func (c chronicle) write(t *testing.T, o *model, aud directory.Audience, limit int) {
	t.Helper()
	ds, to, _ := o.Digests(aud, 0, limit)
	must(t, os.WriteFile(c.file(store.StreamID{Origin: alpha, Audience: aud, Epoch: o.epoch}, to), listed(ds), 0o600))
}

// listed is what live digests say, one a line.
func listed(ds []signed.Digest) []byte {
	var all []string
	for _, d := range ds {
		if d.Live() {
			all = append(all, fmt.Sprintln(d.RID, d.Revision, d.H, d.M, d.Deadline))
		}
	}

	slices.Sort(all)

	return []byte(strings.Join(all, ""))
}

// TestAcceptingUntilKilled is a node that follows an origin, on a real disk, and says
// how far it is once that is durable. It is the process that the test below kills.
func TestAcceptingUntilKilled(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("another test starts it")
	}

	runtime.LockOSThread() // strace counts by thread
	defer runtime.UnlockOSThread()
	w := newWorld()
	origin := newModel(alpha, beta)
	origin.epoch -= 1000
	source := w.open(t, t.TempDir(), 1, origin, active(beta, 1))
	origin.listKeys(nil, source.keys)
	b := w.open(t, t.TempDir(), 1, newModel(beta, alpha), active(alpha, 1))
	b.cfg.Dir, b.cfg.noSync = filepath.Join(dir, "node"), false

	const each, agents = 10, 35
	limit, dial := fmt.Sprint("&limit=", each), b.cfg.Client
	b.cfg.Client = func(td spiffeid.TrustDomain) *http.Client {
		return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			r.URL.RawQuery += limit
			return dial(td).Do(r)
		})}
	}
	b.reopen(t)
	told := chronicle{dir}
	o := b.origins.Get(alpha)
	n := protocol.Node{Domain: alpha, Base: source.base}
	rng := rand.New(rand.NewPCG(1, 1))

	for i := range agents { // a first sync of several pages, three of them at a time in hand
		origin.register(fmt.Sprint("first-", i), 86400)
	}

	for most := each; most < agents+each; most += each {
		told.write(t, origin, directory.Mesh, most)
	}

	must(t, b.receiver.askHead(t.Context(), o, n))
	must(t, b.pulls(o, &o.Mesh, n))
	fmt.Fprintln(os.Stdout, "at", directory.Mesh, origin.epoch, o.Since(&o.Mesh))
	limit = ""

	for i := range 24 {
		if i%7 == 6 {
			origin.restore()
			origin.listKeys(nil, source.keys)
		}

		for range 3 {
			origin.happens(rng)
		}

		for _, f := range o.Feeds() {
			told.write(t, origin, f.Aud, protocol.MaxDigests)

			if f == &o.Mesh {
				must(t, b.receiver.askHead(t.Context(), o, n))
			}

			must(t, b.pulls(o, f, n))
			fmt.Fprintln(os.Stdout, "at", f.Aud, origin.epoch, o.Since(f))
		}

		b.follower.backlog(t.Context(), o)

		if i%3 == 0 {
			must(t, b.store.Wipe(true, atOnce))
		}

		if i%8 == 4 {
			must(t, b.follower.repull(t.Context(), o, &o.Mesh, o.Mesh.Cur, n, 1<<20))
		}
	}
}

// happens is a change.
func (o *model) happens(rng *rand.Rand) {
	var rids []directory.RID
	for rid, r := range o.regs {
		if r.alive {
			rids = append(rids, rid)
		}
	}

	slices.SortFunc(rids, directory.RID.Compare)

	if len(rids) < 4 || rng.IntN(3) == 0 {
		o.register(fmt.Sprint("agent-", o.made), 86400)
		return
	}

	switch rid := rids[rng.IntN(len(rids))]; rng.IntN(5) {
	case 0:
		o.remove(rid)
	case 1:
		o.replace(rid, 86400)
	case 2:
		o.refresh(rid, 43200)
	case 3:
		o.grant(rid, directory.Only(beta), rng.IntN(2) == 0)
	default:
		o.grant(rid, directory.Mesh, rng.IntN(2) == 0, required...)
	}
}

// A node that is killed at any fsync of what it does with pages has, when it starts
// again, of each stream the entries of its watermark and no others, with a record for
// each that has one; a watermark that it had said was durable is there; and its origin
// is followed on, into a newer epoch too. So a first sync goes on from its last page.
//
// Requirement: MESH-014, MESH-018
func TestKilledAtAnySync(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}

	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace to kill a process at an fsync")
	}

	moments := []int{1, 4, 7, 12, 31, 60} // of over a hundred
	if os.Getenv("STORY_LONG") != "" {
		moments = nil

		for n := 1; ; n++ {
			if !killedAt(t, strace, n) {
				t.Logf("killed at each of %d", n-1)
				return
			}
		}
	}

	for _, n := range moments {
		if !killedAt(t, strace, n) {
			t.Errorf("the process ended before its fsync number %d", n)
		}
	}
}

// killedAt runs a node that is killed at its fsync number n, and looks at what it
// left. It returns false if it ended before that.
func killedAt(t *testing.T, strace string, n int) (killed bool) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "node"), 0o700))
	self, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, strace, "-f", "-o", os.DevNull, "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprintf("inject=fsync,fdatasync:signal=SIGKILL:when=%d", n), self,
		"-test.run=^TestAcceptingUntilKilled$")
	child.Env = append(os.Environ(), crashDir+"="+dir)
	child.WaitDelay = time.Second

	out, err := child.CombinedOutput()
	if bytes.Contains(out, []byte("ptrace")) {
		t.Skipf("strace can't trace here: %s", out)
	}

	if bytes.Contains(out, []byte("FAIL")) {
		t.Fatalf("fsync %d: %s", n, out)
	}

	leftBehind(t, n, dir, out)

	return err != nil
}

// leftBehind checks what a killed node has on disk.
func leftBehind(t *testing.T, n int, dir string, out []byte) {
	t.Helper()
	w, told := newWorld(), chronicle{dir}
	origin := newModel(alpha, beta)
	source := w.open(t, t.TempDir(), 1, origin, active(beta, 1))
	origin.listKeys(nil, source.keys)
	b := w.open(t, t.TempDir(), 1, newModel(beta, alpha), active(alpha, 1))
	b.cfg.Dir = filepath.Join(dir, "node")
	b.reopen(t)
	streams, err := b.store.Streams(alpha)
	must(t, err)

	has := map[string]directory.Position{}
	for _, st := range streams {
		id, at := st.Id, st.State.Watermark
		if err := holds(b.store, id); err != nil {
			t.Errorf("fsync %d: %v", n, err)
		}

		if at == 0 {
			continue
		}

		want, err := os.ReadFile(told.file(id, at))
		if got := listed(b.held(t, id)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("fsync %d: %v at %d holds\n%sand not\n%s(%v)", n, id, at, got, want, err)
		}

		has[id.Audience.String()] = directory.Position{Epoch: id.Epoch, Revision: at} // epochs ascend
	}

	for line := range strings.Lines(string(out)) {
		var (
			aud string
			p   directory.Position
		)
		if _, err := fmt.Sscanf(line, "at %s %d %d\n", &aud, &p.Epoch, &p.Revision); err == nil && has[aud].Before(p) {
			t.Errorf("fsync %d: %s was at %v for sure and is at %v", n, aud, p, has[aud])
		}
	}

	origin.registers(5, 600)

	o := b.origins.Get(alpha)
	if o == nil {
		return // killed before it knew anybody
	}

	must(t, b.receiver.askHead(t.Context(), o, protocol.Node{Domain: alpha, Base: source.base}))
	must(t, b.pulls(o, &o.Mesh, protocol.Node{Domain: alpha, Base: source.base}))

	if shown := b.shown(alpha); len(shown) < 5 {
		t.Errorf("fsync %d: %d of 5 are shown after it goes on", n, len(shown))
	}

	must(t, b.Close())
}

// held is the contents of the disk of a stream.
func (s *site) held(t *testing.T, id store.StreamID) (ds []signed.Digest) {
	t.Helper()
	must(t, s.store.Read(id, func(tx *store.Tx) error {
		return tx.Entries.ForEach(func(k, v []byte) error {
			rid, err := directory.ParseRID(string(k))
			if err != nil {
				return err
			}

			var h store.Entry
			if err := store.Unmarshal(v, &h); err != nil {
				return err
			}

			ds = append(ds, h.Digest(rid))

			return nil
		})
	}))

	return ds
}
