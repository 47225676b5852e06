package request

import (
	"net/http"
	"slices"
	"testing"
)

// Requirement: AD-079
func TestConditionsOfWrites(t *testing.T) {
	for _, x := range []struct {
		match, none string
		want        Condition
		existing    []uint64
	}{
		{"", "", Condition{}, nil},
		{"*", "", Condition{Present: true}, nil},
		{`"7.aa", *`, "", Condition{Present: true}, nil},
		{`"7.aa"`, "", Condition{Revisions: []uint64{7}}, []uint64{7}},
		{`"7.0123abcd-gzip"`, "", Condition{Revisions: []uint64{7}}, []uint64{7}},
		{` , `, "", Condition{Revisions: []uint64{}}, []uint64{}},
		{"", "*", Condition{Absent: true}, []uint64{NoRevision}},
		{`"7.aa"`, "*", Condition{Revisions: []uint64{7}, Absent: true}, []uint64{NoRevision}},
	} {
		r := &http.Request{Header: http.Header{}}
		if x.match != "" {
			r.Header.Set("If-Match", x.match)
		}

		if x.none != "" {
			r.Header.Set("If-None-Match", x.none)
		}

		got, err := ParseCondition(r.Header)
		if err != nil || !slices.Equal(got.Revisions, x.want.Revisions) ||
			(got.Revisions == nil) != (x.want.Revisions == nil) ||
			got.Present != x.want.Present || got.Absent != x.want.Absent ||
			!slices.Equal(got.OfExisting(), x.existing) {
			t.Errorf("If-Match %s, If-None-Match %s: %+v, %v", x.match, x.none, got, err)
		}
	}
}

// Requirement: AD-079
func TestIfMatchOfWrites(t *testing.T) {
	for _, x := range []struct {
		header    string
		revisions []uint64
		exists    bool
	}{
		{"", nil, false}, {"*", nil, true}, {`"381.0123abcd"`, []uint64{381}, false},
		{`"381.0123abcd", "382.0123abcd"`, []uint64{381, 382}, false},
		{`W/"381.0123abcd"`, []uint64{}, false}, {`"abc"`, []uint64{}, false},
		{`381.0123abcd`, []uint64{}, false}, {`"99999999999999999999999.a"`, []uint64{}, false},
	} {
		r := &http.Request{Header: http.Header{}}
		if x.header != "" {
			r.Header.Set("If-Match", x.header)
		}

		if cond, err := ParseCondition(r.Header); err != nil || !slices.Equal(cond.Revisions, x.revisions) ||
			cond.Present != x.exists {
			t.Errorf("If-Match %s is %+v, %v; want %v, %v", x.header, cond, err, x.revisions, x.exists)
		}
	}
}
