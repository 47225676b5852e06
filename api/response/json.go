package response

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// Encode returns v as JSON with sorted members. v is made of plain fields, so nothing
// can fail.
func Encode(v any) []byte {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}

	return data
}

// AppendOptional appends a member with a string, unless that is empty.
func AppendOptional(data []byte, name, value string) []byte {
	if value == "" {
		return data
	}

	return strictjson.AppendText(data, name, value)
}

// AppendOptionalRaw appends a member with a JSON value, unless that is nil.
func AppendOptionalRaw(data []byte, name string, value []byte) []byte {
	if value == nil {
		return data
	}

	return strictjson.AppendRaw(data, name, value)
}

// AppendBool appends a member with a boolean.
func AppendBool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(strictjson.AppendRaw(b, name, nil), value)
}

// AppendNumber appends a member with a number.
func AppendNumber(b []byte, name string, value float64) []byte {
	return strconv.AppendFloat(strictjson.AppendRaw(b, name, nil), value, 'g', -1, 64)
}

// AppendTime appends a member with a time, in Unix milliseconds and not before 1970, as
// RFC 3339 in UTC with milliseconds. time formats the layout without fractions much
// faster than any other, so the milliseconds are appended by hand.
func AppendTime(data []byte, name string, ms int64) []byte {
	data = append(strictjson.AppendRaw(data, name, nil), '"')
	data = time.UnixMilli(ms).UTC().AppendFormat(data, time.RFC3339)

	return append(data[:len(data)-len("Z")], '.', '0'+byte(ms/100%10), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"')
}

// Union returns a, and the elements of b that a lacks. It leaves a's array as it is.
func Union(a, b []string) []string {
	a = slices.Clip(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}

	return a
}
