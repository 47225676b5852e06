package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A StreamID names one stream.
type StreamID struct {
	Origin   spiffeid.TrustDomain
	Audience directory.Audience
	Epoch    uint64
}

// key sorts an origin's streams together and their epochs ascending.
func (id StreamID) key() []byte {
	return binary.BigEndian.AppendUint64(fmt.Appendf(nil, "%s\x00%s\x00", id.Origin.Name(), id.Audience), id.Epoch)
}

func parseStreamKey(b []byte) (StreamID, error) {
	parts := bytes.SplitN(b, []byte{0}, 3)
	if len(parts) != 3 || len(parts[2]) != 8 {
		return StreamID{}, ErrStore
	}

	td, err := spiffeid.TrustDomainFromString(string(parts[0]))
	if err != nil {
		return StreamID{}, ErrStore
	}

	aud, err := directory.ParseAudience(string(parts[1]))
	if err != nil {
		return StreamID{}, ErrStore
	}

	return StreamID{td, aud, binary.BigEndian.Uint64(parts[2])}, nil
}

// State is the progress of a stream on this node. Each transaction that changes the stream
// writes it.
type State struct {
	_         struct{} `cbor:",toarray"`
	Watermark uint64
	Live      uint64 // entries held, the pending ones too
	Listed    uint64 // digests in the chain
	Chain     byte   // which of the two buckets holds the chain
}

// The states of an entry's record on this node.
const (
	RecordMissing   = 0 // pending: neither shown nor passed on
	RecordHeld      = 1
	RecordRefused   = 2 // signed by the origin, but refused by the record gate
	RecordOverQuota = 3 // it exceeds a quota
)

// Entry is the state of one registration in a stream.
type Entry struct {
	_         struct{} `cbor:",toarray"`
	Revision  uint64
	H, M      directory.Hash
	Deadline  int64
	Lifetime  uint32
	Key       directory.Hash // thumbprint of the key that signed the page
	CheckedAt int64          // when that page was verified; Unix milliseconds
	At        int64          // when the record came, as CheckedAt
	From      string         // the domain whose node handed it over
	Record    uint8
	Place     uint64 // where the record is, if it is held
	Format    Format // of a record that is held and was not opened
	// Owner and Size are of the record, if it came: there may have been no room for it.
	Owner OwnerKey
	Size  uint32
}

func (h *Entry) Name() protocol.RecordName { return protocol.RecordName{H: h.H, M: h.M} }

// Digest returns the digest with which a page would list h.
func (h *Entry) Digest(rid directory.RID) signed.Digest {
	return signed.Digest{RID: rid, Revision: h.Revision, Op: signed.OpPut, H: h.H, M: h.M, Deadline: h.Deadline,
		Lifetime: h.Lifetime}
}

// Record is a record as received. The hashes in its page cover payload and disclosures; the
// signature is verified before the record is given out as a proof.
type Record struct {
	_           struct{} `cbor:",toarray"`
	Header      string   // of the JWS, base64url
	Payload     []byte
	Signature   string
	Disclosures []string
}

// Is reports whether the hashes of r match a name.
func (r *Record) Is(n protocol.RecordName) bool {
	return directory.HashOf(r.Payload) == n.H && signed.HashDisclosures(r.Disclosures) == n.M
}

// Parts returns the record in parts.
func (r *Record) Parts() protocol.RecordParts {
	return protocol.RecordParts{
		Header: r.Header, Payload: r.Payload, Signature: r.Signature, Disclosures: r.Disclosures,
	}
}

func (r *Record) Signed() signed.Record {
	return signed.Record{JWS: protocol.JoinJWS(r.Header, r.Payload, r.Signature), Disclosures: r.Disclosures}
}

// Page is one link of a chain.
type Page struct {
	_      struct{} `cbor:",toarray"`
	From   uint64
	Listed uint64
	JWS    string
}

// Origin is the stored state of an origin beside its streams.
type Origin struct {
	_          struct{} `cbor:",toarray"`
	Epoch      uint64   // of the stream that is shown
	Floor      int64    // rule T4: the origin's time at the last write; Unix milliseconds
	Head       string   // the newest verified head
	Keys       string   // the adopted key document
	Distrusted []byte   // nodes of the origin, as package replica encodes them; nil for none
}

var encoding = func() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // the options are constants
	}

	return m
}()

// Marshal encodes a value of the file.
func Marshal(v any) []byte {
	switch v := v.(type) {
	case *Entry:
		return appendEntry(make([]byte, 0, entrySize), v)
	case *Record:
		return appendRecord(nil, v)
	}

	data, err := encoding.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("federation: encode %T: %v", v, err)) // our own types, all of which encode
	}

	return data
}

// entrySize is more than an encoded entry has, unless its texts are long.
const entrySize = 256

// Unmarshal decodes the output of Marshal, and keeps no part of b. It returns ErrStore for other
// data.
func Unmarshal(b []byte, v any) error {
	read := false
	switch v := v.(type) {
	case *Entry:
		read = decodeEntry(b, v)
	case *Record:
		read = decodeRecord(b, v)
	}

	if read {
		return nil
	}

	if err := cbor.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w (%s)", ErrStore, strings.TrimPrefix(err.Error(), "cbor: "))
	}

	return nil
}
