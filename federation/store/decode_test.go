package store

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Entries and records are encoded and decoded as the CBOR library does.
func TestDecodesAsTheLibraryDoes(t *testing.T) {
	hash := rapid.Custom(func(t *rapid.T) (h directory.Hash) {
		copy(h[:], rapid.SliceOfN(rapid.Byte(), len(h), len(h)).Draw(t, "hash"))
		return h
	})

	rapid.Check(t, func(t *rapid.T) {
		held := Entry{
			Revision: rapid.Uint64().Draw(t, "revision"), H: hash.Draw(t, "h"), M: hash.Draw(t, "m"),
			Deadline: rapid.Int64().Draw(t, "deadline"), Lifetime: rapid.Uint32().Draw(t, "lifetime"),
			Key: hash.Draw(t, "key"), CheckedAt: rapid.Int64().Draw(t, "checked"), At: rapid.Int64().Draw(t, "at"),
			From: rapid.String().Draw(t, "from"), Record: rapid.Uint8().Draw(t, "record"),
			Place: rapid.Uint64().Draw(t, "place"), Format: Format(rapid.Uint8().Draw(t, "format")),
			Owner: OwnerKey(rapid.Uint64().Draw(t, "owner")), Size: rapid.Uint32().Draw(t, "size"),
		}
		record := Record{
			Header: rapid.String().Draw(t, "header"), Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Signature:   rapid.String().Draw(t, "signature"),
			Disclosures: rapid.SliceOf(rapid.String()).Draw(t, "disclosures"),
		}

		if ours, librarys := Marshal(&held), Marshal(held); !bytes.Equal(ours, librarys) {
			t.Fatalf("%+v: got %x; the library %x", held, ours, librarys)
		}

		if ours, librarys := Marshal(&record), Marshal(record); !bytes.Equal(ours, librarys) &&
			record.Payload != nil && record.Disclosures != nil { // for which the library writes null
			t.Fatalf("%+v: got %x; the library %x", record, ours, librarys)
		}

		name := protocol.RecordName{H: held.H, M: held.M}
		if stored := record.Stored(name); !bytes.Equal(stored, append(name.Bytes(), Marshal(&record)...)) ||
			stored.Size() != len(Marshal(&record)) {
			t.Fatalf("%+v: stored as %x", record, stored)
		}

		readsAsTheLibrary(t, decodeEntry, Marshal(held), true)
		readsAsTheLibrary(t, decodeRecord, Marshal(record), record.Payload != nil && record.Disclosures != nil)
	})
}

// An entry or a record that the disk has damaged is decoded as the CBOR library decodes it, or left to it.
func TestDamageIsDecodedAsTheLibraryDoes(t *testing.T) {
	entry := Marshal(&Entry{Revision: 1 << 40, H: directory.Hash{1}, Deadline: -1 << 20, Lifetime: 1 << 10, From: "é",
		Record: 30, Format: 2, Owner: 1 << 63, Size: 1 << 30})
	record := Marshal(&Record{Header: "é", Payload: make([]byte, 30), Signature: "s",
		Disclosures: []string{"é", "", "d"}})

	eachDamage(entry, func(data []byte) { readsAsTheLibrary(t, decodeEntry, data, false) })
	eachDamage(record, func(data []byte) { readsAsTheLibrary(t, decodeRecord, data, false) })
}

// eachDamage calls f with each beginning of data, and with the head of an item of any type and length in place of
// each byte.
func eachDamage(data []byte, f func([]byte)) {
	for at := range data {
		f(data[:at])

		for major := range byte(8) {
			for _, info := range []byte{0, 1, 24, 25, 26, 27, 28, 31} {
				damaged := bytes.Clone(data)
				damaged[at] = major<<5 | info

				f(damaged)
			}
		}
	}
}

// readsAsTheLibrary compares a decoder with the library. It must read data if it is whole.
func readsAsTheLibrary[T any](t interface{ Fatalf(string, ...any) }, decode func([]byte, *T) bool, data []byte,
	whole bool) {
	ours, librarys := new(T), new(T)

	switch read := decode(data, ours); {
	case read:
		if err := cbor.Unmarshal(data, librarys); err != nil || !reflect.DeepEqual(ours, librarys) {
			t.Fatalf("%x: got %+v; the library %+v, %v", data, ours, librarys, err)
		}
	case whole:
		t.Fatalf("%x: not decoded", data)
	}
}
