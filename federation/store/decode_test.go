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

// Entries and records are decoded as the CBOR library decodes them, also if the disk has
// damaged them.
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

		for _, c := range []struct {
			data            []byte
			ours, librarys  any
			decode          func(data []byte, to any) bool
			alwaysDecodesIt bool
		}{
			{Marshal(held), new(Entry), new(Entry), func(data []byte, to any) bool {
				return decodeEntry(data, to.(*Entry))
			}, true},
			{Marshal(record), new(Record), new(Record), func(data []byte, to any) bool {
				return decodeRecord(data, to.(*Record))
			}, record.Payload != nil && record.Disclosures != nil},
		} {
			data := c.data

			damaged := rapid.Bool().Draw(t, "damaged")
			if damaged {
				data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
				data = data[:rapid.IntRange(0, len(data)).Draw(t, "length")]
			}

			read := c.decode(data, c.ours)
			err := cbor.Unmarshal(data, c.librarys)

			switch {
			case read && (err != nil || !reflect.DeepEqual(c.ours, c.librarys)):
				t.Fatalf("%x: got %+v; the library %+v, %v", data, c.ours, c.librarys, err)
			case !read && !damaged && c.alwaysDecodesIt:
				t.Fatalf("%x: not decoded", data)
			}
		}
	})
}
