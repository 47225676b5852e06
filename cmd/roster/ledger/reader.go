package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/ledger"
)

// A reader reads one log of a directory. Its results about a tree were checked against the root of the tree's
// checkpoint.
type reader struct {
	ctx    context.Context
	client *apiclient.Client
	prefix string // of the log's epoch
	again  func() // has the next request make a new connection, perhaps to another node
}

// openLog returns the reader of an epoch's log, 0 for the present epoch.
func openLog(ctx context.Context, session *connect.Session, epoch uint64) (*reader, error) {
	client, err := session.Client()
	if err != nil {
		return nil, err
	}

	r := &reader{ctx: ctx, client: client, prefix: "/log/" + strconv.FormatUint(epoch, 10), again: session.CloseIdle}
	if epoch != 0 {
		return r, nil
	}

	reply, err := client.Do(ctx, http.MethodGet, "/log/checkpoint", nil, nil)

	// The answer redirects to the log of the present epoch, and only that address is of use.
	if reply == nil || reply.Header.Get("Location") == "" {
		return nil, errors.Join(err, errors.New("the directory names no log"))
	}

	// The directory chooses the path, so it must be that of a log.
	prefix, isCheckpoint := strings.CutSuffix(reply.Header.Get("Location"), "/checkpoint")
	if !isCheckpoint || !strings.HasPrefix(prefix, "/log/") {
		return nil, fmt.Errorf("the directory names %q as its log", reply.Header.Get("Location"))
	}

	r.prefix = prefix

	return r, nil
}

func (r *reader) get(path string) ([]byte, error) {
	reply, err := r.client.Do(r.ctx, http.MethodGet, r.prefix+path, nil, nil)
	if err != nil {
		return nil, err
	}

	return reply.Body, nil
}

// Bounds of the attempts at nodes that lack a part of the tree of another node's checkpoint.
const (
	partAttempts = 5
	partPause    = 500 * time.Millisecond
)

// part reads a tile or entries. One address may lead to several nodes, and a node that lags does not have all of the
// tree of another node's checkpoint yet.
func (r *reader) part(path string) (text []byte, err error) {
	for attempt := range partAttempts {
		if attempt > 0 {
			// Another connection may reach a node that has the part.
			r.again()

			if !apiclient.Pause(r.ctx, partPause) {
				return nil, r.ctx.Err()
			}
		}

		if text, err = r.get(path); err == nil || !errors.Is(err, apiclient.ErrNotFound) {
			return text, err
		}
	}

	return nil, err
}

// checkpoint reads the log's checkpoint and judges it by a policy; nil is the log's own, which
// shows no more than that the directory agrees with itself.
func (r *reader) checkpoint(policy *checkpoint.Policy) (*checkpoint.Note, checkpoint.Judgement, error) {
	text, err := r.get("/checkpoint")
	if err != nil {
		return nil, checkpoint.Judgement{}, err
	}

	if policy == nil {
		if _, policy, err = r.policy(); err != nil {
			return nil, checkpoint.Judgement{}, err
		}
	}

	return judge(string(text), policy)
}

// policy reads the log's own policy.
func (r *reader) policy() (string, *checkpoint.Policy, error) {
	text, err := r.get("/policy")
	if err != nil {
		return "", nil, err
	}

	policy, err := checkpoint.ParsePolicy(string(text))
	if err != nil {
		return "", nil, cli.Failed(cli.ExitFormat, "the policy that the directory serves: %w", err)
	}

	return string(text), policy, nil
}

// judge reads a checkpoint that must be signed as a policy says.
func judge(text string, policy *checkpoint.Policy) (*checkpoint.Note, checkpoint.Judgement, error) {
	note, err := checkpoint.Parse(text)
	if err != nil {
		return nil, checkpoint.Judgement{}, cli.Failed(cli.ExitFormat, "the checkpoint: %w", err)
	}

	found, err := policy.Judge(note)

	switch {
	case err != nil:
		return nil, found, cli.Failed(cli.ExitFormat, "the checkpoint of %s: %w", note.Origin, err)
	case len(found.Logs) == 0:
		return nil, found, cli.Failed(cli.ExitKey, "no log of the policy signed the checkpoint of %s", note.Origin).
			WithHint("The policy needs a line \"log VKEY\" for each key of the log; \"roster log policy\" prints them.")
	case !found.Quorum:
		return nil, found, cli.Failed(exitInclusion, "the checkpoint of %s is not cosigned by the policy's quorum, %s",
			note.Origin, policy.Quorum)
	}

	return note, found, nil
}

// hashes reads hashes of a checkpoint's tree.
func (r *reader) hashes(c checkpoint.Checkpoint) tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: int64(c.Size), Hash: tlog.Hash(c.Root)}, tiles{r})
}

// tiles reads tiles as C2SP tlog-tiles has them. tlog checks them.
type tiles struct{ reader *reader }

const tileHeight = 8

// Height implements tlog.TileReader.
func (tiles) Height() int { return tileHeight }

// SaveTiles implements tlog.TileReader.
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader.
func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	out := make([][]byte, len(wanted))
	for i, tile := range wanted {
		data, err := t.reader.part(tilePath(strconv.Itoa(tile.L), tile.N, tile.W))
		if err != nil {
			return nil, err
		}

		if len(data) != tile.W*tlog.HashSize {
			return nil, cli.Failed(cli.ExitFormat, "tile %d/%d of the log has %d bytes, not %d", tile.L, tile.N,
				len(data), tile.W*tlog.HashSize)
		}

		out[i] = data
	}

	return out, nil
}

// tilePath is the path of a tile, or of a bundle of entries.
func tilePath(level string, n int64, width int) string {
	return "/tile/" + level + "/" + ledger.TilePath(uint64(n), width)
}

// prove returns the path from an index to a checkpoint's root.
func (r *reader) prove(c checkpoint.Checkpoint, index uint64) ([]directory.Hash, error) {
	path, err := tlog.ProveRecord(int64(c.Size), int64(index), r.hashes(c))
	return fromTree(path), r.explain(err)
}

// extends checks that the log of a checkpoint is that of an older one with entries appended.
func (r *reader) extends(c, old checkpoint.Checkpoint) error {
	if old.Size == 0 || old.Size == c.Size {
		return c.Extends(old, nil)
	}

	proof, err := tlog.ProveTree(int64(c.Size), int64(old.Size), r.hashes(c))
	if err != nil {
		return r.explain(err)
	}

	return c.Extends(old, fromTree(proof))
}

// explain distinguishes a tile outside of the checkpoint's tree from a tile that can't be read.
func (r *reader) explain(err error) error {
	var response *apiclient.Error
	if err == nil || errors.As(err, &response) {
		return err
	}

	// tlog has no error value for this.
	if strings.Contains(err.Error(), "inconsistent tile") {
		return cli.Failed(exitInclusion, "a tile of the log does not belong to its checkpoint: %w", err)
	}

	return err
}

func fromTree(hashes []tlog.Hash) []directory.Hash {
	out := make([]directory.Hash, len(hashes))
	for i, h := range hashes {
		out[i] = directory.Hash(h)
	}

	return out
}

// An entry is an entry of a log: a type and the hash of a payload.
type entry struct {
	Index uint64         `json:"index"`
	Type  byte           `json:"type"`
	Kind  string         `json:"kind"`
	Hash  directory.Hash `json:"hash"`
	// Payload has this hash. It is that of the start of an epoch, and empty for other entries.
	Payload string `json:"payload,omitempty"`
}

// explain returns the facts in an entry of the start of an epoch, and keeps its payload; empty for other entries.
func (e *entry) explain(r *reader) string {
	if e.Type != ledger.Epoch {
		return ""
	}

	payload, err := r.get("/start")
	if err != nil {
		return "not readable here: " + cli.FailureOf(err).Message
	}

	if directory.HashOf(payload) != e.Hash {
		return "the start that the directory serves is not of this entry"
	}

	start, err := ledger.ParseStart(payload)
	if err != nil {
		return err.Error()
	}

	e.Payload = string(payload)

	if start.Former == 0 {
		return start.Reason
	}

	return fmt.Sprintf("follows %s, which ended with %d entries; revision %d was restored: %s",
		directory.LogName(start.Domain, start.Former), start.Size, start.Restored, start.Reason)
}

// kinds are the types of entries (docs/spec/federation.md).
var kinds = []string{1: "statement", "batch", "key document", "bundle", "epoch", "operator command", "audit head"}

// entries reads the entries from one index up to another, each checked against the checkpoint.
func (r *reader) entries(c checkpoint.Checkpoint, from, to uint64, take func(entry)) error {
	const full = 1 << tileHeight

	hashes := r.hashes(c)

	for n := from / full; n*full < to; n++ {
		// The last bundle ends with the checkpoint's tree, whatever range is asked for.
		width := min(c.Size-n*full, full)

		bundle, err := r.part(tilePath("entries", int64(n), int(width)))
		if err != nil {
			return err
		}

		// One tile has the leaves of the whole bundle.
		indexes := make([]int64, width)
		for i := range indexes {
			indexes[i] = tlog.StoredHashIndex(0, int64(n*full)+int64(i))
		}

		leaves, err := hashes.ReadHashes(indexes)
		if err != nil {
			return r.explain(err)
		}

		for i := range width {
			// The directory states the length, so it is checked before the bundle is cut by it.
			if len(bundle) < 2 || len(bundle)-2 < int(binary.BigEndian.Uint16(bundle)) {
				return cli.Failed(cli.ExitFormat, "bundle %d of the log ends before its entry %d", n, i)
			}

			size := 2 + int(binary.BigEndian.Uint16(bundle))
			data := bundle[2:size]
			bundle = bundle[size:]

			// The entries before the range are read only because their lengths lead to the others.
			if index := n*full + i; index >= from && index < to {
				if tlog.RecordHash(data) != leaves[i] {
					return cli.Failed(exitInclusion, "entry %d of the log does not belong to its checkpoint", index)
				}

				take(entryOf(index, data))
			}
		}
	}

	return nil
}

// entryOf reads an entry. One of a later release has another size, and no hash here.
func entryOf(index uint64, data []byte) entry {
	e := entry{Index: index, Kind: "unknown"}
	if len(data) == 1+len(e.Hash) {
		e.Type, e.Hash = data[0], directory.Hash(data[1:])
		if e.Type > 0 && int(e.Type) < len(kinds) {
			e.Kind = kinds[e.Type]
		}
	}

	return e
}

// maxIndex is an end beyond all logs.
const maxIndex = math.MaxInt64
