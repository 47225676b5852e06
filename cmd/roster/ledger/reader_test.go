package ledger

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/mod/sumdb/tlog"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/ledger"
)

// A server is a log in memory, which answers as C2SP tlog-tiles has it, by torchwood's paths.
type server struct {
	hashes []tlog.Hash // by stored index
	size   int64
	damage string // path of the file of which the first byte is changed
}

func (s *server) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var out []tlog.Hash
	for _, i := range indexes {
		out = append(out, s.hashes[i])
	}

	return out, nil
}

// begun is the start of an epoch of which the log has an entry.
var begun = ledger.Start{Domain: spiffeid.RequireTrustDomainFromString("alpha.test"), Epoch: 9, Former: 8, Size: 31,
	Restored: 20, Reason: "a test"}

func payload(i int64) directory.Hash {
	if i == 263 {
		return directory.HashOf(begun.Payload())
	}

	return directory.HashOf(fmt.Append(nil, i))
}

func data(i int64) []byte {
	h := payload(i)
	return append([]byte{byte(i%7) + 1}, h[:]...)
}

func newServer(t *testing.T, size int64) *server {
	t.Helper()

	s := &server{size: size}
	for i := range size {
		hashes, err := tlog.StoredHashes(i, data(i), s)
		if err != nil {
			t.Fatal(err)
		}

		s.hashes = append(s.hashes, hashes...)
	}

	return s
}

func (s *server) checkpoint(size int64) checkpoint.Checkpoint {
	root, err := tlog.TreeHash(size, s)
	if err != nil {
		panic(err)
	}

	return checkpoint.Checkpoint{Origin: "alpha.test/roster/1", Size: uint64(size), Root: directory.Hash(root)}
}

// file returns a tile or a bundle of entries; nil if there is none.
func (s *server) file(path string) []byte {
	tile, err := torchwood.ParseTilePath(path)
	if err != nil {
		return nil
	}

	if tile.L >= 0 {
		content, err := tlog.ReadTileData(tile, s)
		if err != nil {
			return nil
		}

		return content
	}

	var bundle []byte
	for i := tile.N << 8; i < tile.N<<8+int64(tile.W); i++ {
		bundle = append(binary.BigEndian.AppendUint16(bundle, 33), data(i)...)
	}

	return bundle
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/log/1/")
	status, content := http.StatusOK, s.file(path)

	if content == nil {
		status = http.StatusNotFound
	} else if path == s.damage {
		content[5] ^= 1
	}

	return &http.Response{StatusCode: status, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(string(content)))}, nil
}

func (s *server) reader(t *testing.T) *reader {
	t.Helper()

	client := apiclient.NewDirect("https://alpha.test", &http.Client{Transport: s})

	return &reader{ctx: t.Context(), client: client, prefix: "/log/1", again: func() {}}
}

// Requirement: LOG-016
func TestTheLogIsReadFromItsTiles(t *testing.T) {
	const size = 70_000

	s := newServer(t, size)
	r := s.reader(t)

	for _, n := range []int64{1, 255, 256, 257, 65_536, size} {
		c := s.checkpoint(n)

		for _, index := range []int64{0, n / 2, n - 1} {
			path, err := r.prove(c, uint64(index))
			if err != nil || c.Includes(data(index), uint64(index), path) != nil {
				t.Errorf("index %d of %d: %v", index, n, err)
			}
		}

		for _, old := range []int64{0, 1, n / 3, n} {
			if err := r.extends(c, s.checkpoint(old)); err != nil {
				t.Errorf("from %d to %d: %v", old, n, err)
			}
		}

		if n > 1 {
			other := s.checkpoint(n / 2)
			other.Root[0] ^= 1

			if err := r.extends(c, other); !errors.Is(err, checkpoint.ErrProof) {
				t.Errorf("from another tree to %d: %v", n, err)
			}
		}
	}

	seen := uint64(250)

	err := r.entries(s.checkpoint(size), 250, 600, func(e entry) {
		if e.Index != seen || e.Hash != payload(int64(seen)) || e.Type != byte(seen%7)+1 || e.Kind == "unknown" {
			t.Errorf("entry %d is read as %+v", seen, e)
		}

		seen++
	})
	if err != nil || seen != 600 {
		t.Errorf("read up to %d: %v", seen, err)
	}
}

// A file of the log that does not belong to the checkpoint is found, whatever is read of it.
func TestDamagedFilesOfTheLogAreFound(t *testing.T) {
	s := newServer(t, 600)
	c := s.checkpoint(600)

	for _, path := range []string{"tile/0/000", "tile/0/002.p/88", "tile/1/000.p/2", "tile/entries/001"} {
		s.damage = path
		r := s.reader(t)

		_, proved := r.prove(c, 3)
		listed := r.entries(c, 0, 600, func(entry) {})

		if path != "tile/entries/001" && cli.FailureOf(proved).Code != exitInclusion {
			t.Errorf("with %s damaged, a proof ends with %v", path, proved)
		}

		if cli.FailureOf(listed).Code != exitInclusion {
			t.Errorf("with %s damaged, a list ends with %v", path, listed)
		}
	}
}

func TestTilesHaveThePathsOfTheSpecification(t *testing.T) {
	for _, n := range []int64{0, 7, 999, 1000, 1_234_067, 1_000_000_000} {
		for _, width := range []int{1, 255, 256} {
			for level, name := range map[int]string{0: "0", 5: "5", -1: "entries"} {
				want := "/" + torchwood.TilePath(tlog.Tile{H: 8, L: level, N: n, W: width})
				if got := tilePath(name, n, width); got != want {
					t.Errorf("tile %d at level %s of width %d has the path %s, want %s", n, name, width, got, want)
				}
			}
		}
	}
}

func TestCheckpointsAreJudgedByThePolicy(t *testing.T) {
	seed := directory.HashOf([]byte("a"))
	key := ed25519.NewKeyFromSeed(seed[:])
	text := checkpoint.Sign(newServer(t, 3).checkpoint(3), key)
	vkey := func(kind byte, name string) string {
		return checkpoint.VerifierKey{Name: name, Type: kind, Key: key.Public().(ed25519.PublicKey)}.String()
	}

	log := "log " + vkey(checkpoint.TypeLog, "alpha.test/roster/1") + "\n"
	for policy, code := range map[string]int{
		log + "quorum none\n": 0,
		"log " + vkey(checkpoint.TypeLog, "beta.test/roster/1") + "\nquorum none\n": cli.ExitKey,
		"quorum none\n": cli.ExitKey,
		log + "witness w " + vkey(checkpoint.TypeWitness, "w.example") + "\nquorum w\n": exitInclusion,
	} {
		parsed, err := checkpoint.ParsePolicy(policy)
		if err != nil {
			t.Fatal(err)
		}

		_, _, err = judge(text, parsed)
		if err == nil && code != 0 || err != nil && cli.FailureOf(err).Code != code {
			t.Errorf("by the policy\n%sit is %v, want exit code %d", policy, err, code)
		}
	}
}
