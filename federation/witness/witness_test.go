package witness

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/torchwood"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

var must = directorytest.Must

var beta = directorytest.Beta

// A tree is a log in memory, and its branch begins at a fork.
type tree struct {
	origin string
	key    ed25519.PrivateKey
	leaves []directory.Hash
}

func newTree(origin string, size int) *tree {
	log := &tree{origin: origin, key: ed25519.NewKeyFromSeed(make([]byte, 32))}
	log.grow(size, "")

	return log
}

// grow appends leaves.
func (l *tree) grow(n int, branch string) {
	for range n {
		l.leaves = append(l.leaves, directory.HashOf(fmt.Appendf([]byte{0}, "%s%d", branch, len(l.leaves))))
	}
}

// split returns the largest power of two below n.
func split(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

// hash is the tree hash of RFC 6962, 2.1.
func hash(leaves []directory.Hash) directory.Hash {
	switch len(leaves) {
	case 0:
		return checkpoint.EmptyRoot
	case 1:
		return leaves[0]
	}

	k := split(len(leaves))
	left, right := hash(leaves[:k]), hash(leaves[k:])

	return directory.HashOf(append(append([]byte{1}, left[:]...), right[:]...))
}

// consistency is the proof of RFC 6962, 2.1.2.
func consistency(m int, leaves []directory.Hash, whole bool) []directory.Hash {
	k := 0
	if len(leaves) > 1 {
		k = split(len(leaves))
	}

	switch {
	case m == len(leaves) && whole:
		return nil
	case m == len(leaves):
		return []directory.Hash{hash(leaves)}
	case m <= k:
		return append(consistency(m, leaves[:k], whole), hash(leaves[k:]))
	default:
		return append(consistency(m-k, leaves[k:], false), hash(leaves[:k]))
	}
}

func (l *tree) checkpoint(size int) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{Origin: l.origin, Size: uint64(size), Root: hash(l.leaves[:size])}
}

func (l *tree) note(size int) string { return checkpoint.Sign(l.checkpoint(size), l.key) }

func (l *tree) vkey() checkpoint.VerifierKey {
	return checkpoint.VerifierKey{Name: l.origin, Type: checkpoint.TypeLog, Key: l.key.Public().(ed25519.PublicKey)}
}

// submission is what the log submits behind a size.
func (l *tree) submission(old, size int) string {
	s := Submission{Old: uint64(old), Checkpoint: l.note(size)}
	if old > 0 && old < size {
		s.Proof = consistency(old, l.leaves[:size], true)
	}

	return s.Text()
}

// A memory is the state of a witness domain of one node. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex // guards the fields below
	taken map[string]Taken
	here  map[string]Taken // what this member has applied
	err   error
}

func (m *memory) Cosigned(origin string) (Taken, uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.here[origin]

	return last, 1, ok
}

func (m *memory) Cosign(_ context.Context, next Next, _ []directory.Hash) (uint64, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.err != nil {
		return 0, time.Time{}, m.err
	}

	if m.taken[next.Origin].Size != next.Old {
		return 0, time.Time{}, directory.Refuse(directory.Conflict, "another size")
	}

	now := time.Now()
	m.taken[next.Origin] = Taken{next.Origin, next.Size, next.Root, next.Note, now.Unix()}
	m.here[next.Origin] = m.taken[next.Origin]

	return 1, now, nil
}

func (m *memory) Linearize(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.err == nil {
		maps.Copy(m.here, m.taken)
	}

	return m.err
}

// keys are those of the peers' ledgers, and the witness's own.
type keys struct {
	logs map[spiffeid.TrustDomain][]checkpoint.VerifierKey
	own  ed25519.PrivateKey
	err  error
}

const witnessName = "alpha.test/roster/1/witness/roster/node/n1"

func (k *keys) LogKeys(origin spiffeid.TrustDomain) []checkpoint.VerifierKey { return k.logs[origin] }

func (k *keys) Cosign(note *checkpoint.Note, _ uint64, at time.Time) (string, error) {
	return checkpoint.Cosign(note, witnessName, k.own, at), k.err
}

func (k *keys) vkey() checkpoint.VerifierKey {
	return checkpoint.VerifierKey{
		Name: witnessName, Type: checkpoint.TypeWitness, Key: k.own.Public().(ed25519.PublicKey),
	}
}

// A fixture is a witness that knows the ledger of a peer and a foreign log.
type fixture struct {
	*Witness
	store       *memory
	keys        *keys
	ledger      *tree
	foreign     *tree
	second      *tree // the ledger by its second key
	state       directory.PeeringState
	contradicts []string
}

func newFixture() *fixture {
	f := &fixture{
		store:  &memory{taken: map[string]Taken{}, here: map[string]Taken{}},
		ledger: newTree("beta.test/roster/7", 40), second: newTree("beta.test/roster/7", 40),
		foreign: newTree("log.example/2026", 40), state: directory.PeeringActive,
		keys: &keys{own: ed25519.NewKeyFromSeed(append(make([]byte, 31), 1))},
	}
	f.foreign.key = ed25519.NewKeyFromSeed(append(make([]byte, 31), 2))
	f.second.key = ed25519.NewKeyFromSeed(append(make([]byte, 31), 3))
	f.keys.logs = map[spiffeid.TrustDomain][]checkpoint.VerifierKey{beta: {f.second.vkey(), f.ledger.vkey()}}
	f.Witness = New(Config{
		Store: f.store, Keys: f.keys,
		Logs: &Logs{
			Keys: f.keys, Every: 10 * time.Second,
			Peerings: func() []directory.Peering {
				return []directory.Peering{{Domain: beta, State: f.state}}
			},
			Outside: []Log{{Keys: []checkpoint.VerifierKey{f.foreign.vkey()}, Every: time.Minute,
				Contact: "log@example"}},
		},
		Contradicts: func(peer spiffeid.TrustDomain, taken, other string) {
			f.contradicts = append(f.contradicts, peer.Name(), taken, other)
		},
	})

	return f
}

// post submits a body and returns the answer.
func (f *fixture) post(body string) *httptest.ResponseRecorder {
	to := httptest.NewRecorder()
	f.Handler().ServeHTTP(to, httptest.NewRequest(http.MethodPost, pathSubmit, strings.NewReader(body)))

	return to
}

func (f *fixture) get(path string) *httptest.ResponseRecorder {
	to := httptest.NewRecorder()
	f.Handler().ServeHTTP(to, httptest.NewRequest(http.MethodGet, path, nil))

	return to
}

// A submission is answered with the six statuses of C2SP tlog-witness, the first that applies, by a
// peer's ledger and by a foreign log alike.
//
// Requirement: LOG-007, LOG-009
func TestSubmissionsAreAnsweredAsC2SPSays(t *testing.T) {
	for every, of := range map[time.Duration]func(*fixture) *tree{
		10 * time.Second: func(f *fixture) *tree { return f.ledger },
		time.Minute:      func(f *fixture) *tree { return f.foreign },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			log := of(f)
			first := ""
			stranger := newTree("stranger.test/roster/7", 9)
			forged := *log
			forged.key = ed25519.NewKeyFromSeed(append(make([]byte, 31), 9))
			branch := newTree(log.origin, 10)
			branch.key = log.key
			branch.grow(30, "x")

			twice := strings.Replace(log.note(9), "\n9\n", "\n8\n", 1) // a signature of another text
			wrong := &Submission{Old: 12, Proof: consistency(11, log.leaves[:30], true), Checkpoint: log.note(30)}
			spare := &Submission{Proof: consistency(11, log.leaves[:30], true), Checkpoint: log.note(30)}
			none := strings.Repeat("A", 43) + "=\n"
			empty := checkpoint.Sign(checkpoint.Checkpoint{Origin: log.origin, Root: directory.Hash{1}}, log.key)

			for _, step := range []struct {
				name, body string
				status     int
				size       string
			}{
				{"no submission", "hello", 400, ""},
				{"no size", "old x\n\n" + log.note(9), 400, ""},
				{"a hash that is none", "old 1\nAAAA\n\n" + log.note(9), 400, ""},
				{"a hash and more", "old 1\n" + strings.Repeat("A", 43) + "=x\n\n" + log.note(9), 400, ""},
				{"64 hashes", "old 1\n" + strings.Repeat(none, 64) + "\n" + log.note(9), 400, ""},
				{"no checkpoint", "old 0\n\nhello\n", 400, ""},
				{"an unknown origin", stranger.submission(0, 9), 404, ""},
				{"a stranger's key", forged.submission(0, 9), 403, ""},
				{"a signature of another text", "old 0\n\n" + twice, 403, ""},
				{"an old size above the size", log.submission(9, 9)[:4] + "99\n\n" + log.note(9), 400, ""},
				{"a size that was not cosigned", log.submission(5, 9), 409, "0\n"},
				{"a first one with a proof", spare.Text(), 422, ""},
				{"an empty log with leaves", "old 0\n\n" + empty, 422, ""},
				{"the first", log.submission(0, 12), 200, ""},
				{"the first again", log.submission(0, 12), 409, "12\n"},
				{"the same again", log.submission(12, 12), 200, ""},
				{"a wrong proof", wrong.Text(), 422, ""},
				{"another branch", branch.submission(12, 30), 422, ""},
				{"another root of the same size", branch.submission(12, 12), 422, ""},
				{"too soon", log.submission(12, 30), 429, ""},
			} {
				got := f.post(step.body)
				if got.Code != step.status {
					t.Errorf("%s: got %d %s, want %d", step.name, got.Code, got.Body, step.status)
				}

				if step.size != "" && (got.Body.String() != step.size ||
					got.Header().Get("Content-Type") != "text/x.tlog.size") {
					t.Errorf("%s: got %q, %v", step.name, got.Body, got.Header())
				}

				after := got.Header().Get("Retry-After")
				if step.status == 429 && after != strconv.Itoa(int(every/time.Second)-1) {
					t.Errorf("%s: got %v", step.name, got.Header())
				}

				switch {
				case step.status != 200:
				case first == "":
					first = got.Body.String()

					time.Sleep(time.Second)
				case got.Body.String() != first:
					t.Errorf("%s: cosigned at another time: %s", step.name, got.Body)
				}
			}

			// The empty log contradicts nothing: it came before the first checkpoint.
			if slices.Contains(f.contradicts, "") {
				t.Errorf("accused are %q", f.contradicts)
			}

			time.Sleep(time.Minute)

			if got := f.post(log.submission(12, 30)); got.Code != 200 {
				t.Errorf("a minute later: got %d %s", got.Code, got.Body)
			}
		})
	}
}

// Each trusted key of a ledger may sign a checkpoint. A forged line of one refuses it, even beside a good one.
//
// Requirement: LOG-007
func TestALedgerOfTwoKeys(t *testing.T) {
	f := newFixture()
	_, forged, _ := strings.Cut(f.second.note(8), "\n\n")

	if got := f.post(f.ledger.submission(0, 9) + forged); got.Code != 403 {
		t.Errorf("a forged line beside a good one: got %d %s", got.Code, got.Body)
	}

	if got := f.post(f.second.submission(0, 9)); got.Code != 200 {
		t.Errorf("the second key: got %d %s", got.Code, got.Body)
	}
}

// Only an active peer's ledger is cosigned, shown and listed. A foreign log needs no peering.
//
// Requirement: LOG-007, LOG-023
func TestTheLedgerOfAFormerPeerIsNotCosigned(t *testing.T) {
	for _, state := range []directory.PeeringState{
		directory.PeeringPending, directory.PeeringFrozen, directory.PeeringTerminated,
	} {
		f := newFixture()
		f.post(f.ledger.submission(0, 9))

		f.state = state
		sum := sha256.Sum256([]byte(f.ledger.origin))

		if got := f.post(f.ledger.submission(9, 9)); got.Code != 404 {
			t.Errorf("%s: a submission: got %d %s", state, got.Code, got.Body)
		}

		if got := f.get("/witness/" + hex.EncodeToString(sum[:]) + "/checkpoint"); got.Code != 404 {
			t.Errorf("%s: the last checkpoint: got %d %s", state, got.Code, got.Body)
		}

		if list := f.get(pathList).Body.String(); strings.Contains(list, f.ledger.origin) {
			t.Errorf("%s: listed in %s", state, list)
		}

		if got := f.post(f.foreign.submission(0, 9)); got.Code != 200 {
			t.Errorf("%s: a foreign log: got %d %s", state, got.Code, got.Body)
		}
	}
}

// A member that is behind asks the others before it refuses a submission, or states a size.
//
// Requirement: LOG-007
func TestAMemberThatIsBehindKnowsWhatTheDomainHasTaken(t *testing.T) {
	for name, c := range map[string]struct {
		old, size, status int
		answer            string // the beginning
	}{
		"behind the last one": {12, 30, 200, "\u2014 "},
		"behind an older one": {5, 30, 409, "12\n"},
		"the first":           {0, 12, 409, "12\n"},
		"without its domain":  {12, 30, 503, "{"},
	} {
		f := newFixture()
		f.store.taken[f.ledger.origin] = Taken{Origin: f.ledger.origin, Size: 12, Root: f.ledger.checkpoint(12).Root}

		if c.status == 503 {
			f.store.err = directory.Refuse(directory.Unavailable, "no leader")
		}

		got := f.post(f.ledger.submission(c.old, c.size))
		if got.Code != c.status || !strings.HasPrefix(got.Body.String(), c.answer) {
			t.Errorf("%s: got %d %s", name, got.Code, got.Body)
		}
	}
}

// Torchwood verifies a cosignature, and finds it with the log's in the last checkpoint.
//
// Requirement: LOG-008
func TestTorchwoodVerifiesWhatWasCosigned(t *testing.T) {
	f := newFixture()
	answer := f.post(f.foreign.submission(0, 12))

	sum := sha256.Sum256([]byte(f.foreign.origin))
	latest := f.get("/witness/" + hex.EncodeToString(sum[:]) + "/checkpoint")

	if want := f.foreign.note(12) + answer.Body.String(); latest.Code != 200 || latest.Body.String() != want {
		t.Fatalf("got %d %s, want %s", latest.Code, latest.Body, want)
	}

	policy := fmt.Sprintf("log %s\nwitness w %s\nquorum w\n", f.foreign.vkey(), f.keys.vkey())

	believed, err := torchwood.ParsePolicy([]byte(policy))
	must(t, err)

	c, _, err := torchwood.VerifyCheckpoint(latest.Body.Bytes(), believed)
	if err != nil || c.N != 12 || c.Origin != f.foreign.origin {
		t.Errorf("got %+v, %v", c, err)
	}

	for _, path := range []string{"/witness/" + strings.Repeat("0", 64) + "/checkpoint", "/witness/x/checkpoint"} {
		if got := f.get(path); got.Code != 404 {
			t.Errorf("%s: got %d", path, got.Code)
		}
	}
}

// The list has the logs that are witnessed, each key of a peer's ledger too.
//
// Requirement: LOG-023
func TestTheWitnessedLogsAreListed(t *testing.T) {
	f := newFixture()
	want := fmt.Sprintf("logs/v0\n\nvkey %s\nqpd 8640\n\nvkey %s\nqpd 8640\n\nvkey %s\nqpd 1440\n"+
		"contact log@example\n", f.second.vkey(), f.ledger.vkey(), f.foreign.vkey())

	if got := f.get(pathList); got.Body.String() != want || got.Header().Get("Content-Type") != typeText {
		t.Errorf("got %s", got.Body)
	}
}

// The last checkpoint of a log that was cosigned is given out with its cosignature.
//
// Requirement: LOG-007
func TestTheLastCheckpointIsShown(t *testing.T) {
	f := newFixture()
	path := func(log *tree) string {
		return fmt.Sprintf("%s/%x/checkpoint", Prefix, sha256.Sum256([]byte(log.origin)))
	}

	line := f.post(f.ledger.submission(0, 12)).Body.String()

	if got := f.get(path(f.ledger)); got.Code != 200 || got.Body.String() != f.ledger.note(12)+line ||
		got.Header().Get("Content-Type") != typeText {
		t.Errorf("got %d %v %s", got.Code, got.Header(), got.Body)
	}

	for _, log := range []*tree{f.foreign, newTree("stranger.test/roster/7", 9)} {
		if got := f.get(path(log)); got.Code != 404 {
			t.Errorf("of a log that wasn't cosigned: %d %s", got.Code, got.Body)
		}
	}
}

// A ledger that signs two roots of one size has contradicted itself: both notes are handed over, each
// with the ledger's signature alone. A foreign log is only refused.
//
// Requirement: LOG-017
func TestTwoRootsOfOneSizeAreReported(t *testing.T) {
	f := newFixture()
	for _, log := range []*tree{f.ledger, f.foreign} {
		f.post(log.submission(0, 12))
		f.post("old 12\n\n" + log.note(12)) // the same root again accuses nobody

		branch := newTree(log.origin, 10)
		branch.key = log.key
		branch.grow(30, "x")

		other, err := checkpoint.Parse(branch.note(12))
		must(t, err)

		junk := checkpoint.Cosign(other, "junk.example", log.key, time.Now())
		if got := f.post("old 12\n\n" + other.String() + junk); got.Code != 422 {
			t.Errorf("got %d", got.Code)
		}

		if log == f.ledger && (len(f.contradicts) != 3 || f.contradicts[0] != "beta.test" ||
			f.contradicts[1] != log.note(12) || f.contradicts[2] != branch.note(12)) {
			t.Errorf("got %q", f.contradicts)
		}
	}

	if len(f.contradicts) != 3 {
		t.Errorf("a foreign log was accused: %q", f.contradicts)
	}
}

// The leader verifies what another member brings by itself.
//
// Requirement: MESH-023
func TestTheLeaderChecksACheckpoint(t *testing.T) {
	f := newFixture()
	next := Next{Origin: f.ledger.origin, Size: 12, Root: f.ledger.checkpoint(12).Root, Note: f.ledger.note(12)}

	if err := f.cfg.Logs.Check(next, Taken{}, nil); err != nil {
		t.Errorf("got %v", err)
	}

	for name, change := range map[string]func(*Next){
		"another root":   func(n *Next) { n.Root = directory.Hash{1} },
		"another size":   func(n *Next) { n.Size = 13 },
		"another origin": func(n *Next) { n.Origin = f.foreign.origin },
		"another note":   func(n *Next) { n.Note = strings.Replace(n.Note, "12", "13", 1) },
		"no note":        func(n *Next) { n.Note = "" },
		"a later start":  func(n *Next) { n.Old = 1 },
	} {
		other := next
		change(&other)

		if err := f.cfg.Logs.Check(other, Taken{}, nil); directory.ProblemOf(err) != directory.Forbidden {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A domain that can't write at the moment says so, and cosigns nothing.
func TestAWitnessWithoutItsDomainCosignsNothing(t *testing.T) {
	f := newFixture()
	f.store.err = directory.Refuse(directory.Unavailable, "no leader")

	got := f.post(f.ledger.submission(0, 12))
	if got.Code != http.StatusServiceUnavailable || strings.Contains(got.Body.String(), witnessName) {
		t.Errorf("got %d %s", got.Code, got.Body)
	}

	f.store.err = nil

	for _, f.keys.err = range []error{signed.ErrKeyUnknown, signed.ErrKeyRevoked} {
		clear(f.store.taken)
		clear(f.store.here)

		if got := f.post(f.ledger.submission(0, 12)); got.Code != http.StatusServiceUnavailable {
			t.Errorf("%v: got %d %s", f.keys.err, got.Code, got.Body)
		}
	}

	large := f.post(strings.Repeat("x", maxSubmission+1))
	if body, _ := io.ReadAll(large.Body); large.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: got %d %s", large.Code, body)
	}
}
