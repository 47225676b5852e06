package protocol

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A name is what records are asked for by: the hash of the statement and that
// of the disclosures.
type RecordName struct{ H, M directory.Hash }

func NameOf(d signed.Digest) RecordName { return RecordName{d.H, d.M} }

// bytes is the name as a key on disk.
func (n RecordName) Bytes() []byte { return append(n.H[:], n.M[:]...) }

// A namesRequest is the body of POST /federation/v1/records.
type RecordsRequest struct {
	Origin string              `json:"origin"`
	Names  [][2]directory.Hash `json:"names"`
}

func (r RecordsRequest) Bytes() []byte {
	b := strictjson.AppendText([]byte{'{'}, "origin", r.Origin)
	list := []byte{'['}
	for i, n := range r.Names {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(strictjson.AppendString(append(list, '['), n[0].String()), ',')
		list = append(strictjson.AppendString(list, n[1].String()), ']')
	}
	return append(strictjson.AppendRaw(b, "names", append(list, ']')), '}')
}

// A recordLine is one line of the answer to it.
type RecordLine struct {
	H      directory.Hash `json:"h"`
	M      directory.Hash `json:"m"`
	Record string         `json:"record"`
	Error  string         `json:"error"`
}

func (l RecordLine) Bytes() []byte {
	b := strictjson.AppendText([]byte{'{'}, "h", l.H.String())
	b = strictjson.AppendText(b, "m", l.M.String())
	if l.Error != "" {
		b = strictjson.AppendText(b, "error", l.Error)
	} else {
		b = strictjson.AppendText(b, "record", l.Record)
	}
	return append(b, '}', '\n')
}

// readLine reads a line of an answer. One that is written as this release writes it
// needs no parser.
func ParseRecordLine(b []byte) (l RecordLine, err error) {
	const (
		h      = `{"h":"`
		m      = `","m":"`
		record = `","record":"`
		end    = `"}`
		hash   = 43 // characters of one
		before = len(h) + hash + len(m) + hash + len(record)
	)
	if len(b) > before+len(end) && bytes.HasPrefix(b, []byte(h)) && bytes.HasPrefix(b[before-len(record):], []byte(record)) && bytes.HasSuffix(b, []byte(end)) {
		l.Record = string(b[before : len(b)-len(end)])
		var err1, err2 error
		l.H, err1 = directory.ParseHash(string(b[len(h) : len(h)+hash]))
		l.M, err2 = directory.ParseHash(string(b[before-len(record)-hash : before-len(record)]))
		if err1 == nil && err2 == nil && strings.IndexByte(l.Record, '"') < 0 {
			return l, nil
		}
		l = RecordLine{}
	}
	return l, json.Unmarshal(b, &l)
}

// A gossiped message is one byte that says what it is, and a JWS.
const (
	GossipPage = 'p'
	GossipHead = 'h'
)
