package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// lookupParams are the parameters that a lookup knows, the draft's own first,
// as the template at /.well-known/ad names them.
var lookupParams = []string{
	"agent", "protocol", "cap_name", "cap_type", "tag", "page", "count",
	"origin", "scope", "status", "language", "after", "brief", "consistency",
}

// itemSize is about what one item takes, to begin with.
const itemSize = 1200

// lookup answers GET /ad/l (jimenez 5).
func (s *Server) lookup(w http.ResponseWriter, c *call) error {
	values, err := c.params.decode(lookupParams)
	if err != nil {
		return err
	}
	q, err := index.ParseQuery(values)
	if err != nil {
		return err
	}
	l := look{registrant: !c.id.IsZero()}
	if l.brief, err = parseBrief(values["brief"]); err != nil {
		return err
	}
	page, err := s.lookUp(c, Reads, q, s.showTo(c))
	if err != nil {
		return err
	}
	room, release := roomFor(c)
	defer release()
	b, hash := s.appendItems(append((*room)[:0], `{"agents":`...), page.Entries, l)
	b = append(b, '}', '\n')
	*room = b
	if page.More {
		w.Header().Set("Link", nextLink("/ad/l", lookupParams, c.params, q.Page, page.Next))
	}
	return send(w, c, "application/json", `W/"`+hex8(hash)+`"`, b)
}

func parseBrief(values []string) (bool, error) {
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "false":
		return false, nil
	case len(values) == 1 && values[0] == "true":
		return true, nil
	}
	return false, directory.Refuse(directory.BadQuery, "brief is %.40q; it is true or false", strings.Join(values, ","))
}

// nextLink is the link to the page behind page: the filters and the count as
// they came, and the cursor (jimenez 5.3, AD-065, AD-066).
func nextLink(path string, known []string, ps params, page int, next index.Cursor) string {
	return "<" + queryOf(path, known, ps) + "page=" + strconv.Itoa(page+1) + "&after=" + next.String() + `>; rel="next"`
}

// queryOf is path with the parameters that it knows, but for those that say where
// a page begins, and room for more.
func queryOf(path string, known []string, ps params) string {
	var b strings.Builder
	b.WriteString(path + "?")
	for _, p := range ps {
		if p.name == "page" || p.name == "after" || !slices.Contains(known, p.name) {
			continue
		}
		v, _ := p.value() // was read before
		b.WriteString(p.name + "=" + escape(v) + "&")
	}
	return b.String()
}

// escape percent-encodes a query's value, all but the asterisk of a prefix.
func escape(v string) string { return strings.ReplaceAll(url.QueryEscape(v), "%2A", "*") }
