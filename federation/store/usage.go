package store

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// An Usage is what a stream holds here, or how that changes.
type Usage struct {
	Records, Bytes int64 // on disk
	OverQuota      int64 // entries for whose records there was no room
	Unopened       Unopened
}

func (u Usage) Plus(usage Usage) Usage {
	u.Records += usage.Records
	u.Bytes += usage.Bytes
	u.OverQuota += usage.OverQuota

	for f := range u.Unopened {
		u.Unopened[f] += usage.Unopened[f]
	}

	return u
}

// Count adds n times what an entry is besides its record.
func (u *Usage) Count(held *Entry, n int64) {
	switch {
	case held.Record == RecordOverQuota:
		u.OverQuota += n
	case held.Record == RecordHeld && held.Format != 0:
		u.Unopened[min(held.Format, otherFormats)] += n // a later release may tell more of them apart
	}
}

// An OwnerKey stands for an owner of an origin's registrations: the beginning of a hash
// of the identity. All whose owner is withheld, or isn't understood, are one: zero.
// An owner who looks for another of the same key finds one in 2^64 tries, and shares its
// share then.
type OwnerKey uint64

func OwnerKeyOf(entry *directory.Entry) OwnerKey {
	if entry == nil || entry.Owner.IsZero() {
		return 0
	}

	hash := sha256.Sum256([]byte(entry.Owner.String()))

	return OwnerKey(max(1, binary.BigEndian.Uint64(hash[:])))
}

// A Share is what the records of one owner take.
type Share struct{ Records, Bytes int64 }

func (u Share) Plus(o Share) Share { return Share{u.Records + o.Records, u.Bytes + o.Bytes} }

func (u Share) Usage() Usage { return Usage{Records: u.Records, Bytes: u.Bytes} }

// Owners are what the records of each owner take, or how that changes.
type Owners map[OwnerKey]Share

// Add adds to what one owner has.
func (all Owners) Add(key OwnerKey, change Share) {
	sum := all[key].Plus(change)
	if sum == (Share{}) {
		delete(all, key)
		return
	}

	all[key] = sum
}

// Absorb adds all that changed.
func (all Owners) Absorb(changes Owners) {
	for key, change := range changes {
		all.Add(key, change)
	}
}

// A Format says in which format a record is that this node keeps without having
// opened it. 0 is of a record that it has opened.
type Format uint8

// otherFormats stands for all formats from that one on: who signs the records chooses
// the number, and each is counted by itself.
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
