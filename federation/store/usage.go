package store

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A Usage counts the stored records of a stream, or a change of them.
type Usage struct {
	Records, Bytes int64 // on disk
	OverQuota      int64 // entries whose records exceed a quota
	Missing        int64 // entries whose records are to be requested
	Unopened       Unopened
}

func (u Usage) Plus(usage Usage) Usage {
	u.Records += usage.Records
	u.Bytes += usage.Bytes
	u.OverQuota += usage.OverQuota
	u.Missing += usage.Missing

	for f := range u.Unopened {
		u.Unopened[f] += usage.Unopened[f]
	}

	return u
}

// Count adds n for an entry to the counters other than Records and Bytes.
func (u *Usage) Count(held *Entry, n int64) {
	switch {
	case held.Record == RecordOverQuota:
		u.OverQuota += n
	case held.Record == RecordMissing:
		u.Missing += n
	case held.Record == RecordHeld && held.Format != 0:
		u.Unopened[min(held.Format, otherFormats)] += n // a later release may tell more of them apart
	}
}

// An OwnerKey stands for an owner of an origin's registrations: the beginning of a hash
// of the identity. It is zero for all registrations whose owner is withheld or unreadable.
// Owners with the same key share one quota; finding such an identity takes 2^64 tries.
type OwnerKey uint64

func OwnerKeyOf(entry *directory.Entry) OwnerKey {
	if entry == nil || entry.Owner.IsZero() {
		return 0
	}

	hash := sha256.Sum256([]byte(entry.Owner.String()))

	return OwnerKey(max(1, binary.BigEndian.Uint64(hash[:])))
}

// A Share is the number and the bytes of one owner's records.
type Share struct{ Records, Bytes int64 }

func (u Share) Plus(o Share) Share { return Share{u.Records + o.Records, u.Bytes + o.Bytes} }

func (u Share) Usage() Usage { return Usage{Records: u.Records, Bytes: u.Bytes} }

// Owners are the shares of all owners, or changes of them.
type Owners map[OwnerKey]Share

// Add adds a change to the share of one owner.
func (all Owners) Add(key OwnerKey, change Share) {
	sum := all[key].Plus(change)
	if sum == (Share{}) {
		delete(all, key)
		return
	}

	all[key] = sum
}

// Absorb adds changes to the shares of their owners.
func (all Owners) Absorb(changes Owners) {
	for key, change := range changes {
		all.Add(key, change)
	}
}

// A Format is the format of a record that this node keeps but can't open. 0 means that the
// record was opened.
type Format uint8

// otherFormats stands for all formats from that number on. It bounds the counters, because
// the signer of a record chooses the format.
const otherFormats Format = 17

// FormatOf returns the format of a record that can't be opened; 0 if err is
// something else.
func FormatOf(err error) Format {
	var unsupported *signed.UnsupportedError
	if !errors.As(err, &unsupported) {
		return 0
	}

	return Format(min(unsupported.Format, uint(otherFormats)))
}

func (f Format) String() string {
	if f == otherFormats {
		return "other"
	}

	return strconv.Itoa(int(f))
}

// Unopened counts records by the format in which they wait to be opened.
type Unopened [otherFormats + 1]int64

// ByFormat returns the counts that aren't 0.
func (u *Unopened) ByFormat() map[string]uint64 {
	counts := map[string]uint64{}

	for f, n := range u {
		if n > 0 {
			counts[Format(f).String()] += uint64(n)
		}
	}

	return counts
}
