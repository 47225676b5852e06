package directory

import (
	"fmt"
	"reflect"
	"testing"
)

// fill gives everything within v a value of its own, so that what is not packed
// is missed.
func fill(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.String:
		*n++
		v.SetString(fmt.Sprintf("text-%d", *n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))

		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Uint8:
		v.SetUint('7')
	default:
		panic("a projection has a field of kind " + v.Kind().String() + ": say how it is packed")
	}
}

// Whatever a projection has comes back as it was, from a document that has some
// of its texts and from none.
func TestPack(t *testing.T) {
	var full Projection
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)

	scratch, again := &Projection{}, &Projection{}
	for _, want := range []*Projection{&full, {},
		{Status: "active", Tags: []string{"a", ""}, Examples: []Example{{Text: "text-3"}}}, &full} {
		for _, d := range []Document{{},
			LoadDocument(KindAD, []byte(`{"base":"text-3","tags":["text-7text-11"],"x":77}`))} {
			e := &Entry{Document: d, Packed: Pack(d, want)}
			if got := e.Projection(); !reflect.DeepEqual(got, want) {
				t.Errorf("with %s: got %+v, want %+v", d.Bytes(), got, want)
			}

			if e.Unpack(again); !reflect.DeepEqual(Pack(Document{}, again), Pack(Document{}, want)) {
				t.Errorf("over another, with %s: got %+v, want %+v", d.Bytes(), again, want)
			}

			e.UnpackFilterable(scratch)

			if fmt.Sprint(scratch.Status, scratch.Protocols, scratch.Languages, scratch.Tags,
				len(scratch.Capabilities)) !=
				fmt.Sprint(want.Status, want.Protocols, want.Languages, want.Tags, len(want.Capabilities)) {
				t.Errorf("over another: got %+v, want %+v", scratch, want)
			}
		}
	}

	if e := (&Entry{}); e.Projection() != nil {
		t.Error("an entry without a projection has one")
	}
}
