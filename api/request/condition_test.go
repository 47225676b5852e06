package request

import (
	"net/http"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
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

// A write takes no list of tags that must not match: a client that sends one means something else.
//
// Requirement: AD-079
func TestAWriteTakesNoTagsThatMustNotMatch(t *testing.T) {
	for _, none := range []string{`"7.aa"`, `*, "7.aa"`, ","} {
		if _, err := ParseCondition(http.Header{"If-None-Match": {none}}); directory.ProblemOf(err) !=
			directory.BadRequest {
			t.Errorf("If-None-Match %s: %v", none, err)
		}
	}
}

// Tags are compared strongly by If-Match, and weakly by If-None-Match.
//
// Requirement: AD-079
func TestConditionsOfReads(t *testing.T) {
	for _, x := range []struct {
		tags, etag       string
		match, noneMatch bool
	}{
		{`"a"`, `"a"`, true, true},
		{`"x", "a"`, `"a"`, true, true},
		{`W/"a"`, `"a"`, false, true},
		{`"a"`, `W/"a"`, false, true},
		{`W/"a"`, `W/"a"`, false, true},
		{`*`, `W/"a"`, true, true},
		{`"x"`, `"a"`, false, false},
		{``, `"a"`, false, false},
	} {
		match, none := http.Header{"If-Match": {x.tags}}, http.Header{"If-None-Match": {x.tags}}
		if IfMatch(match, x.etag) != x.match || IfNoneMatch(none, x.etag) != x.noneMatch {
			t.Errorf("%s of %s: matches %t, %t", x.tags, x.etag, IfMatch(match, x.etag), IfNoneMatch(none, x.etag))
		}
	}

	if none := (http.Header{}); !IfMatch(none, `"a"`) || IfNoneMatch(none, `"a"`) {
		t.Error("without a condition a read has one")
	}
}
