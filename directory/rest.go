package directory

import (
	_ "embed" // the dictionary
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// A document at rest is compressed if that makes it much smaller: to a byte that no JSON object
// begins with, and an S2 block by the dictionary that the byte names. This halves the texts of
// real agents, and decompression takes a microsecond. Nothing is ever signed, hashed or
// compared in this form: releases may differ in it.
const (
	restForm    = 1   // names restWords
	minRest     = 192 // bytes of a document that is worth it
	restDivisor = 4   // the smallest part that it must save
	jsonObject  = '{'
)

// restWords is a dictionary of texts that are common in agents' documents, the most common
// last. Snapshots contain documents that were compressed with it, so it never changes: a new
// dictionary is a new form.
//
//go:embed rest.words
var restWords []byte

var restDictionary = sync.OnceValue(func() *s2.Dict { return s2.MakeDict(restWords, nil) })

var restRooms = sync.Pool{New: func() any {
	room := make([]byte, 1+s2.MaxEncodedLen(MaxDocument))
	return &room
}}

// compress returns d's bytes in compressed form, which may be in the given buffer; or as
// they are if compression saves little.
func (d Document) compress(room []byte) []byte {
	raw := strictjson.BytesOf(d.raw)
	if len(raw) < minRest || len(raw) > MaxDocument || raw[0] != jsonObject {
		return raw
	}

	small := restDictionary().Encode(room[1:], raw)
	if len(small) > len(raw)-len(raw)/restDivisor {
		return raw
	}

	room[0] = restForm

	return room[:1+len(small)]
}

// Compressed returns d in the form in which it is stored for long. A log entry is compressed
// once, by its writer, and not by each member that reads it.
func (d Document) Compressed() Document {
	room := restRooms.Get().(*[]byte)
	defer restRooms.Put(room)

	raw := d.compress(*room)

	// A compressed text is always shorter, so one of the same length is the text itself.
	if len(raw) == len(d.raw) {
		return d
	}

	return Document{d.kind, string(raw)}
}

// Decompressed is the reverse of Compressed, for a document that may be damaged.
func (d Document) Decompressed() (Document, error) {
	if d.raw == "" || d.raw[0] != restForm {
		return d, nil
	}

	text, err := decompress(d.raw)

	return Document{d.kind, text}, err
}

// text returns the document as one JSON object.
func (d Document) text() string {
	if d.raw == "" || d.raw[0] != restForm {
		return d.raw
	}

	text, err := decompress(d.raw)
	if err != nil {
		return d.raw // it was never at rest, and is no JSON either
	}

	return text
}

func decompress(raw string) (string, error) {
	small := strictjson.BytesOf(raw[1:])

	// A damaged block must not claim gigabytes, so its length is read first.
	if n, err := s2.DecodedLen(small); err != nil || n > MaxDocument {
		return "", fmt.Errorf("a document of %d bytes at rest is damaged", len(raw))
	}

	text, err := restDictionary().Decode(nil, small)
	if err != nil {
		return "", fmt.Errorf("a document of %d bytes at rest is damaged: %w", len(raw), err)
	}

	if len(text) == 0 || text[0] != jsonObject { // nothing else was ever put to rest, nor one at rest again
		return "", fmt.Errorf("a document of %d bytes at rest is not a JSON object", len(raw))
	}

	return strictjson.TextOf(text), nil
}

// Size returns the length of the document as one JSON object, without decompressing it.
func (d Document) Size() int {
	if d.raw == "" || d.raw[0] != restForm {
		return len(d.raw)
	}

	size, err := s2.DecodedLen(strictjson.BytesOf(d.raw[1:]))
	if err != nil || size > MaxDocument {
		return len(d.raw) // as text, which finds the same damage
	}

	return size
}

// StoredBytes returns the document as it is stored, as a rule compressed, for LoadStored.
// The bytes must not be modified.
func (d Document) StoredBytes() []byte { return strictjson.BytesOf(d.raw) }

// LoadStored returns a document of its StoredBytes, which may be damaged. It keeps raw,
// which must not be modified any more.
func LoadStored(kind Kind, raw []byte) (Document, error) {
	doc := LoadDocument(kind, raw)
	if _, err := doc.Decompressed(); err != nil {
		return Document{}, err
	}

	return doc, nil
}

// entryOverhead is about how many bytes an entry takes beside its texts.
const entryOverhead = 512

// HeldBytes returns about how many bytes e takes in memory.
func (e *Entry) HeldBytes() int {
	return entryOverhead + len(e.Document.raw) + len(e.Packed.code) + len(e.Agent)
}

// Compact prepares e for an Index: it compresses the document, and puts it, the projection
// and the name into one allocation of exactly their size.
func (e *Entry) Compact() {
	room := restRooms.Get().(*[]byte)
	defer restRooms.Put(room)
	doc := e.Document.compress(*room)

	var out strings.Builder
	out.Grow(len(doc) + len(e.Packed.code) + len(e.Agent))
	out.Write(doc)
	out.WriteString(e.Packed.code)
	out.WriteString(e.Agent)
	all, code := out.String(), len(doc)
	agent := code + len(e.Packed.code)
	e.Document.raw = all[:code]
	e.Packed.code = all[code:agent]
	e.Agent = all[agent:]
}
