// Package ledger serves the domain's transparency log to anyone, as C2SP tlog-tiles has it.
package ledger

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
)

// A Log has the files of the domain's logs, one for each epoch. Its errors are
// directory.NotFound for what the log does not have, and Unavailable.
type Log interface {
	// Epoch is the epoch at hand; 0 while there is none.
	Epoch() uint64
	// Checkpoint is a signed note of the log as it is, with the cosignatures of witnesses.
	Checkpoint(epoch uint64) (string, error)
	// Policy is a C2SP tlog-policy of the log's keys and witnesses.
	Policy(epoch uint64) (string, error)
	// Start is the payload of the log's first entry.
	Start(epoch uint64) ([]byte, error)
	// Tile has the first width hashes of a tile, and Bundle the first width entries of a bundle.
	Tile(epoch uint64, level int, n uint64, width int) ([]byte, error)
	Bundle(epoch, n uint64, width int) ([]byte, error)
}

// A Handler answers the routes under /log/.
type Handler struct{ Log Log }

// Latest answers GET /log/checkpoint with a redirect to the checkpoint of the epoch at hand.
func (h *Handler) Latest(w http.ResponseWriter, _ *request.Call) error {
	epoch := h.Log.Epoch()
	if epoch == 0 {
		return directory.Refuse(directory.Unavailable, "the domain's ledger has not begun; try again later")
	}

	w.Header().Set("Cache-Control", "public, max-age=2")
	w.Header().Set("Location", fmt.Sprintf("/log/%d/checkpoint", epoch))

	return response.Empty(w, http.StatusTemporaryRedirect)
}

// Checkpoint answers GET /log/{epoch}/checkpoint.
func (h *Handler) Checkpoint(w http.ResponseWriter, call *request.Call) error {
	return h.text(w, call, h.Log.Checkpoint)
}

// Policy answers GET /log/{epoch}/policy.
func (h *Handler) Policy(w http.ResponseWriter, call *request.Call) error {
	return h.text(w, call, h.Log.Policy)
}

func (h *Handler) text(w http.ResponseWriter, call *request.Call, of func(epoch uint64) (string, error)) error {
	epoch, err := epochOf(call)
	if err != nil {
		return err
	}

	text, err := of(epoch)
	if err != nil {
		return err
	}

	w.Header().Set("Cache-Control", "public, max-age=2")

	return response.Send(w, call, "text/plain; charset=utf-8", response.WeakTagOf([]byte(text)), []byte(text))
}

// Start answers GET /log/{epoch}/start with the payload of entry 0, byte for byte.
func (h *Handler) Start(w http.ResponseWriter, call *request.Call) error {
	epoch, err := epochOf(call)
	if err != nil {
		return err
	}

	payload, err := h.Log.Start(epoch)
	if err != nil {
		return err
	}

	w.Header().Set("Cache-Control", immutable)

	return response.Send(w, call, "application/json", response.WeakTagOf(payload), payload)
}

// immutable is for files that never change once they exist: only their absence must not be kept.
const immutable = "public, max-age=31536000, immutable"

// epochOf returns the epoch in the path.
func epochOf(call *request.Call) (uint64, error) {
	text := call.Vars["epoch"]

	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(epoch, 10) != text {
		return 0, noFile(text)
	}

	return epoch, nil
}

func noFile(path string) error {
	return directory.Refuse(directory.NotFound, "the ledger has no file %.80q", path)
}

// Tile answers GET /log/{epoch}/tile/{level}/{n}[.p/{width}], with a tile or, at the level
// entries, a bundle of entries. Both never change.
func (h *Handler) Tile(w http.ResponseWriter, call *request.Call) error {
	epoch, err := epochOf(call)
	if err != nil {
		return err
	}

	path := call.Vars["tile"]

	level, n, width, ok := parseTile(path)
	if !ok {
		return noFile("tile/" + path)
	}

	var data []byte
	if level == entries {
		data, err = h.Log.Bundle(epoch, n, width)
	} else {
		data, err = h.Log.Tile(epoch, level, n, width)
	}

	if err != nil {
		return err
	}

	w.Header().Set("Cache-Control", immutable)

	return response.Send(w, call, "application/octet-stream", response.WeakTagOf(data), data)
}

// entries is the level of bundles of entries.
const entries = -1

// fullTile is the width of a full tile, whose path names none.
const fullTile = 256

var tilePath = regexp.MustCompile(`^(entries|[0-7])/((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?$`)

// parseTile reads the path of a tile behind tile/ (C2SP tlog-tiles): one path for each tile.
func parseTile(path string) (level int, n uint64, width int, ok bool) {
	parts := tilePath.FindStringSubmatch(path)
	if parts == nil {
		return 0, 0, 0, false
	}

	if level = entries; parts[1] != "entries" {
		level, _ = strconv.Atoi(parts[1])
	}

	groups := strings.ReplaceAll(strings.ReplaceAll(parts[2], "x", ""), "/", "")

	// A leading group of zeros would be another path to the same tile.
	n, err := strconv.ParseUint(groups, 10, 48)
	if err != nil || len(groups) > 3 && strings.HasPrefix(groups, "000") {
		return 0, 0, 0, false
	}

	width = fullTile
	if parts[3] != "" {
		if width, err = strconv.Atoi(parts[3]); err != nil || width >= fullTile {
			return 0, 0, 0, false
		}
	}

	return level, n, width, true
}
