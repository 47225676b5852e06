package signed

import (
	"math"
	"strconv"

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
	return strictjson.AppendList(data, ds, AppendDigest)
}

// Live reports whether d says that the registration is in the stream.
func (d Digest) Live() bool { return d.Op == OpPut || d.Op == OpRenew }

// maxDeadline is the end of the year 9999. Later times have no RFC 3339 form, and soon no exact
// number in milliseconds.
const maxDeadline = 253402300799

// listed reads the digests of a page, in any of their forms.
func (s *scan) listed(text string) (all []Digest) {
	s.text(text)

	if s.has(`]`) {
		return nil
	}

	for !s.bad {
		all = append(all, s.digest())

		if s.has(`]`) {
			break
		}

		s.text(`,`)
	}

	return all
}

func (s *scan) digest() Digest {
	rid, err := directory.ParseRID(s.between(`{"u":"`))
	d := Digest{RID: rid, Revision: s.member(`,"r":`), Op: Op(s.between(`,"o":"`))}

	if d.Op != OpDrop {
		d.H = s.hashMember(`,"h":"`)
	}

	if d.Live() {
		d.M = s.hashMember(`,"m":"`)
		deadline, lifetime := s.member(`,"x":`), s.member(`,"l":`)
		d.Deadline, d.Lifetime = int64(deadline), uint32(lifetime)
		s.bad = s.bad || deadline > maxDeadline || lifetime > math.MaxUint32
	}

	s.text(`}`)
	s.bad = s.bad || err != nil || !d.Live() && d.Op != OpEnd && d.Op != OpDrop

	return d
}

func (s *scan) hashMember(text string) directory.Hash {
	s.text(text)
	h := s.hash()
	s.text(`"`)

	return h
}
