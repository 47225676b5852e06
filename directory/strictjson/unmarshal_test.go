package strictjson_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory/strictjson"
)

func TestErrorsAreForPeopleWhoWriteJSON(t *testing.T) {
	type renewal struct {
		ID   string    `json:"id"`
		LT   uint32    `json:"lt"`
		At   int8      `json:"at"`
		On   bool      `json:"on"`
		Salt []byte    `json:"salt"`
		Tags []string  `json:"tags"`
		Date time.Time `json:"date"`
		In   struct {
			Owner string `json:"owner"`
		} `json:"in"`
	}

	for text, want := range map[string]string{
		``:                           "the JSON is empty",
		`{"id":"a"}`:                 "the JSON must be an array, got an object",
		`[{"lt":"a"}]`:               `/0/lt must be a whole number from 0 to 4294967295, got "a"`,
		`[{"lt":-1}]`:                "/0/lt must be a whole number from 0 to 4294967295, got -1",
		`[{"at":200}]`:               "/0/at must be a whole number of at most 127, got 200",
		`[{"id":7}]`:                 "/0/id must be a string, got 7",
		`[{"on":"yes"}]`:             `/0/on must be true or false, got "yes"`,
		`[{"salt":"*"}]`:             `/0/salt must be a string in base64, got "*"`,
		`[{"tags":{}}]`:              "/0/tags must be an array, got an object",
		`[{"in":[]}]`:                "/0/in must be an object, got an array",
		`[{"in":{"who":1}}]`:         `the member "who" is not known; known are owner`,
		`[{},{"lifetime":1}]`:        `the member "lifetime" is not known; known are at, date, id, in, lt, on, salt, tags`,
		`[{"id":"a","id":"b"}]`:      `the JSON is not strict: the member "id" occurs twice`,
		`[{"id":"a"`:                 "the JSON ends too early, at byte 10",
		`[{"id":"a"} {"id":"b"}]`:    "the JSON is not valid at byte 12: invalid character '{' after array element",
		`[{"id":"a"}] {}`:            "the JSON is not valid at byte 13: invalid character '{' after top-level value",
		`[{"id":a}]`:                 "the JSON is not valid at byte 7: invalid character 'a' at start of value",
		`[{"date":"yesterday"}]`:     `/0/date must be a time, such as 2026-01-31T15:04:05Z, got "yesterday"`,
		`[{"date":7}]`:               "/0/date must be a time, such as 2026-01-31T15:04:05Z, got 7",
		`[{"in":{"owner":["a"]}}]`:   "/0/in/owner must be a string, got an array",
		`[{"id":"` + "\xff" + `"}]`:  "the JSON is not valid at byte 8: invalid UTF-8",
		`[{"tags":["a",` + `null]}]`: "",
	} {
		var into []renewal

		err := strictjson.Unmarshal([]byte(text), &into, json.RejectUnknownMembers(true))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}

			continue
		}

		var fault *strictjson.Error
		if !errors.As(err, &fault) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}

		if strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "json:") ||
			strings.Contains(err.Error(), "jsontext") || strings.Contains(err.Error(), "after offset") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
