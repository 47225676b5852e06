package signed

import (
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// An Op is the operation of a change, in a statement (put, end) or in a stream's digest.
type Op string

// The operations (federation.md, "Grants").
const (
	OpPut   Op = "put"   // new, or other contents or disclosures
	OpRenew Op = "renew" // a later deadline and nothing else
	OpEnd   Op = "end"   // removed, or expired before its announced deadline
	OpDrop  Op = "drop"  // no longer in this stream
)

// A Digest is one registration's latest state in a stream.
type Digest struct {
	RID      directory.RID
	Revision uint64
	Op       Op
	H        directory.Hash // of the statement; of the end statement for end; zero for drop
	M        directory.Hash // of the disclosures meant for this stream; put and renew only
	Deadline int64          // Unix seconds; put and renew only
	Lifetime uint32         // seconds; put and renew only
}

// AppendDigest appends the one JSON form of d: u r o h m x l for put and renew,
// u r o h for end, u r o for drop.
func AppendDigest(data []byte, digest Digest) []byte {
	data = strictjson.AppendText(append(data, '{'), "u", digest.RID.String())
	data = strictjson.AppendUint(data, "r", digest.Revision)

	data = strictjson.AppendText(data, "o", string(digest.Op))
	if digest.Op != OpDrop {
		data = strictjson.AppendText(data, "h", digest.H.String())
	}

	if digest.Live() {
		data = strictjson.AppendText(data, "m", digest.M.String())
		data = strconv.AppendInt(strictjson.AppendName(data, "x"), digest.Deadline, 10)
		data = strictjson.AppendUint(data, "l", uint64(digest.Lifetime))
	}

	return append(data, '}')
}

// AppendDigests appends the JSON array of digests that a page and the ledger
// leaf of an announced batch contain.
func AppendDigests(data []byte, ds []Digest) []byte {
	data = append(data, '[')
	for i, digest := range ds {
		if i > 0 {
			data = append(data, ',')
		}

		data = AppendDigest(data, digest)
	}

	return append(data, ']')
}

// Live reports whether d says that the registration is in the stream.
func (d Digest) Live() bool { return d.Op == OpPut || d.Op == OpRenew }

var errDigest = errors.New("not a digest")

// maxDeadline is the end of the year 9999. Later times have no RFC 3339 form, and soon no exact
// number in milliseconds.
const maxDeadline = 253402300799

// UnmarshalJSON decodes a digest of any of the forms. That the bytes are the
// canonical ones is for the reader of the whole message to check, by writing it
// again.
func (d *Digest) UnmarshalJSON(data []byte) error {
	var w struct {
		U directory.RID   `json:"u"`
		R uint64          `json:"r"`
		O Op              `json:"o"`
		H *directory.Hash `json:"h"`
		M *directory.Hash `json:"m"`
		X *int64          `json:"x"`
		L uint32          `json:"l"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}

	*d = Digest{RID: w.U, Revision: w.R, Op: w.O, Lifetime: w.L}
	switch {
	case d.Live() && w.H != nil && w.M != nil && w.X != nil && *w.X >= 0 && *w.X <= maxDeadline:
		d.H = *w.H
		d.M = *w.M
		d.Deadline = *w.X
	case d.Op == OpEnd && w.H != nil:
		d.H = *w.H
	case d.Op == OpDrop:
	default:
		return errDigest
	}

	return nil
}
