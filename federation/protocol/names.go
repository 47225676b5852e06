package protocol

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A RecordName identifies a record in requests: the hash of the statement and that of the
// disclosures.
type RecordName struct{ H, M directory.Hash }

func NameOf(d signed.Digest) RecordName { return RecordName{d.H, d.M} }

// Bytes is the name as a key on disk.
func (n RecordName) Bytes() []byte { return append(n.H[:], n.M[:]...) }

// A RecordsRequest is the body of POST /federation/v1/records.
type RecordsRequest struct {
	Origin string              `json:"origin"`
	Names  [][2]directory.Hash `json:"names"`
}

// ParseRecordsRequest reads a request. One that is written as this release writes it needs no
// parser.
func ParseRecordsRequest(body []byte) (RecordsRequest, error) {
	if request, ok := plainRequest(string(body)); ok {
		return request, nil
	}

	var request RecordsRequest
	err := json.Unmarshal(body, &request)

	return request, err
}

// plainRequest reads a request that is written as Bytes writes it.
func plainRequest(body string) (request RecordsRequest, ok bool) {
	const (
		begin = `{"origin":"`
		names = `","names":[`
		hash  = 43 // characters of one
		each  = len(`["",""],`) + 2*hash
	)

	rest, ok1 := strings.CutPrefix(body, begin)
	origin, rest, ok2 := strings.Cut(rest, names)
	list, ok3 := strings.CutSuffix(rest, "]}")

	// With a comma at its end, every name of the list has the same length.
	if list += ","; !ok1 || !ok2 || !ok3 || len(list)%each != 0 || strictjson.PlainPrefix(origin) < len(origin) {
		return request, false
	}

	request = RecordsRequest{Origin: origin, Names: make([][2]directory.Hash, len(list)/each)}

	for i := range request.Names {
		name := list[i*each : (i+1)*each]
		if name[:2] != `["` || name[2+hash:5+hash] != `","` || name[5+2*hash:] != `"],` {
			return request, false
		}

		var err1, err2 error
		request.Names[i][0], err1 = directory.ParseHash(name[2 : 2+hash])
		request.Names[i][1], err2 = directory.ParseHash(name[5+hash : 5+2*hash])

		if err1 != nil || err2 != nil {
			return request, false
		}
	}

	return request, true
}

func (r RecordsRequest) Bytes() []byte {
	data := strictjson.AppendText([]byte{'{'}, "origin", r.Origin)

	list := []byte{'['}
	for i, n := range r.Names {
		if i > 0 {
			list = append(list, ',')
		}

		list = append(strictjson.AppendString(append(list, '['), n[0].String()), ',')
		list = append(strictjson.AppendString(list, n[1].String()), ']')
	}

	return append(strictjson.AppendRaw(data, "names", append(list, ']')), '}')
}

// A RecordLine is one line of the answer to it.
type RecordLine struct {
	H      directory.Hash `json:"h"`
	M      directory.Hash `json:"m"`
	Record string         `json:"record"`
	Error  string         `json:"error"`
}

// Append appends the line to data.
func (l RecordLine) Append(data []byte) []byte {
	data = appendLineOf(data, RecordName{l.H, l.M})
	if l.Error != "" {
		data = strictjson.AppendText(data, "error", l.Error)
	} else {
		data = strictjson.AppendText(data, "record", l.Record)
	}

	return append(data, '}', '\n')
}

// AppendRecordLine appends the line of a record.
func AppendRecordLine(data []byte, name RecordName, parts RecordParts) []byte {
	data = append(appendLineOf(data, name), `,"record":"`...)
	from := len(data)
	data = parts.appendText(data)

	if text := strictjson.TextOf(data[from:]); strictjson.PlainPrefix(text) < len(text) { // no writer of ours makes it
		return RecordLine{H: name.H, M: name.M, Record: parts.Text()}.Append(data[:0])
	}

	return append(data, '"', '}', '\n')
}

// appendLineOf appends the beginning of a line, up to its name.
func appendLineOf(data []byte, name RecordName) []byte {
	data = directory.B64.AppendEncode(append(data, `{"h":"`...), name.H[:])
	data = directory.B64.AppendEncode(append(data, `","m":"`...), name.M[:])

	return append(data, '"')
}

// ParseRecordLine reads a line of an answer. One that is written as this release writes it
// needs no parser.
func ParseRecordLine(data []byte) (line RecordLine, err error) {
	const (
		h      = `{"h":"`
		m      = `","m":"`
		record = `","record":"`
		end    = `"}`
		hash   = 43 // characters of one
		before = len(h) + hash + len(m) + hash + len(record)
	)
	if len(data) > before+len(end) && bytes.HasPrefix(data, []byte(h)) &&
		bytes.HasPrefix(data[before-len(record):], []byte(record)) && bytes.HasSuffix(data, []byte(end)) {
		line.Record = string(data[before : len(data)-len(end)])

		var err1, err2 error
		line.H, err1 = directory.ParseHash(string(data[len(h) : len(h)+hash]))

		line.M, err2 = directory.ParseHash(string(data[before-len(record)-hash : before-len(record)]))
		if err1 == nil && err2 == nil && strings.IndexByte(line.Record, '"') < 0 {
			return line, nil
		}

		line = RecordLine{}
	}

	return line, json.Unmarshal(data, &line)
}

// The types of gossiped messages. A message is one byte for its type, and a JWS.
const (
	GossipPage = 'p'
	GossipHead = 'h'
)
