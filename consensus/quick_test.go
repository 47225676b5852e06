package consensus

import (
	"reflect"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// quickly is what the two quick decoders are given: registrations with all that they
// may have, and without.
func quickly() (commands, requests [][]byte) {
	for _, c := range everyCommand() {
		if c.Register == nil {
			continue
		}
		commands = append(commands, must((&batch{firstVersion, genesis, []command{c, {}}}).encode()))
	}
	full := *everyCommand()[0].Register
	full.Present, full.Absent, full.Until, full.For, full.Lifetime = true, true, genesis, tool, 1<<20
	full.Made = &made{make([]byte, 32), make([]byte, 64), make([]byte, 64), &packed{1, make([]byte, 24)}}
	full.Document = make([]byte, 300)
	full.Visibility, full.IfMatch = directory.Visibility{}, []uint64{}
	commands = append(commands, must((&batch{firstVersion, genesis, []command{{Register: &full}}}).encode()))
	judged := uint64(1 << 40)
	for _, who := range []caller{{Identity: ada}, {tool, true, "req-1", directory.Hash{4}, genesis, &judged}} {
		for _, p := range []*packed{nil, {1, []byte{0}}} {
			requests = append(requests, must(encoding.Marshal(&request{Register: &registerRequest{
				who, "translator", directory.KindProfile, []byte("{}"), 600, directory.Visibility{Mesh: true}, []uint64{7}, true, true, true, p, ada,
			}})))
		}
	}
	return commands, requests
}

// generally decodes as if nothing were quick.
func generally[T any](data []byte) (*T, error) {
	v := new(T)
	return v, decoding.Unmarshal(data, v)
}

func TestRegistrationsAreReadQuickly(t *testing.T) {
	commands, requests := quickly()
	for _, data := range commands {
		want := must(generally[batch](data))
		if got, ok := quickBatch(data); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %t; want %+v", got, ok, want)
		}
	}
	for _, data := range requests {
		want := must(generally[request](data))
		if got, ok := quickRequest(data); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %t; want %+v", got, ok, want)
		}
	}
}

// Whatever is read quickly is read so by the decoder of everything, too: else
// members would disagree about what a log entry says.
func TestWhatIsReadQuicklyIsReadAlike(t *testing.T) {
	commands, requests := quickly()
	for _, data := range commands {
		alike(t, data, quickBatch)
	}
	for _, data := range requests {
		alike(t, data, quickRequest)
	}
}

// alike changes each byte of data in several ways, and cuts it off there.
func alike[T any](t *testing.T, data []byte, quickly func([]byte) (*T, bool)) {
	t.Helper()
	try := func(data []byte) {
		got, ok := quickly(data)
		if !ok {
			return
		}
		if want, err := generally[T](data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%x is read as %+v; and as %+v, %v", data, got, want, err)
		}
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(data); i += step {
		try(data[:i])
		for _, b := range []byte{0x00, 0x01, 0x18, 0x19, 0x1b, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xa1, 0xf4, 0xf5, 0xf6, 0xff, data[i] + 1, data[i] - 1, data[i] ^ 0x20} {
			changed := append([]byte(nil), data...)
			changed[i] = b
			try(changed)
		}
	}
}
