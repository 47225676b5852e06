package crawl_test

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/gateway/crawl"
)

// hostilePages are pages of less than 8 MiB that cost most to take apart.
func hostilePages() map[string]string {
	const size = 1 << 20

	page := func(shared, agents, transports string) string {
		return `{"woa_version":"1",` + shared + `"agents":[` + strings.TrimSuffix(agents, ",") + `],"transports":{` +
			strings.TrimSuffix(transports, ",") + `}}`
	}

	var many, names, distinct strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `{"id":"a%d","transports":["rest"]},`, i)
	}

	for i := range 20_000 {
		fmt.Fprintf(&names, `"x.%d",`, i)
		fmt.Fprintf(&distinct, `"x.%d":{},`, i)
	}

	rest := `"rest":{"base":"https://evil.example"}`

	return map[string]string{
		"a long member of all agents":      page(`"x":"`+strings.Repeat("a", size)+`",`, many.String(), rest),
		"many small members of all agents": page(`"x":[`+strings.Repeat(`"a",`, size/4)+`"a"],`, many.String(), rest),
		"a long transport": page("", many.String(), `"rest":{"x":"`+strings.Repeat("a", size)+
			`","base":"https://evil.example"}`),
		"a transport again and again": page("", `{"id":"a","transports":[`+strings.Repeat(`"rest",`, 50_000)+
			`"rest"]}`, `"rest":{"x":"`+strings.Repeat("a", size)+`","base":"https://evil.example/"}`),
		"many transports": page("", `{"id":"a","transports":[`+strings.TrimSuffix(names.String(), ",")+`]}`,
			distinct.String()),
		"agents that are none":     page("", strings.Repeat("1,", 4*size), rest),
		"transports that are none": page("", "", distinct.String()),
	}
}

// A page costs about as much as it is long, however its agents share its parts: what is made of it is
// bounded before it is made.
//
// Requirement: SEC-005
func TestHostilePages(t *testing.T) {
	at, err := url.Parse("https://evil.example/.well-known/woa.json")
	must(t, err)

	for name, text := range hostilePages() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats

			runtime.ReadMemStats(&before)

			agents, err := crawl.Split(at, []byte(text))

			runtime.ReadMemStats(&after)

			cost := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d KiB cost %d MiB of memory; %d agents, %v", len(text)>>10, cost>>20, len(agents), err)

			if cost > 32<<20 {
				t.Errorf("%d bytes of memory are used, want at most 32 MiB", cost)
			}

			for _, agent := range agents {
				if agent.Err == nil && name != "a transport again and again" {
					t.Fatalf("%s is taken", agent.Name)
				}
			}
		})
	}
}
