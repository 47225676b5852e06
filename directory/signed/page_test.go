package signed_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

func page() *signed.Page {
	return &signed.Page{
		Format: 1, Issuer: alpha, Epoch: noon, Audience: directory.Mesh, From: 380, To: 410, At: 412,
		IssuedAt: noon + 100,
		Digests: []signed.Digest{
			{RID: rid(1), Revision: 381, Op: signed.OpPut, H: hash("h1"), M: hash("m1"), Deadline: noon + 86400,
				Lifetime: 86400},
			{RID: rid(2), Revision: 390, Op: signed.OpRenew, H: hash("h2"), M: hash("m2"), Deadline: noon + 60,
				Lifetime: 60},
			{RID: rid(3), Revision: 391, Op: signed.OpEnd, H: hash("h3")},
			{RID: rid(4), Revision: 410, Op: signed.OpDrop},
		},
	}
}

func TestPageFormat(t *testing.T) {
	p := page()
	golden(t, "page.json", p.Payload())

	back, err := signed.ParsePage(p.Payload())
	if err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("got %+v, %v", back, err)
	}

	empty := &signed.Page{Issuer: alpha, Epoch: noon, Audience: directory.Only(beta), From: 410, To: 412, At: 412,
		IssuedAt: noon}
	golden(t, "page-empty.json", empty.Payload())

	if back, err = signed.ParsePage(empty.Payload()); err != nil || len(back.Digests) != 0 ||
		back.Audience != directory.Only(beta) {
		t.Errorf("got %+v, %v", back, err)
	}
}

func TestParsePageRefuses(t *testing.T) {
	good := string(page().Payload())

	change := func(f func(*signed.Page)) string {
		p := page()
		f(p)

		return string(p.Payload())
	}
	for name, bad := range map[string]string{
		"nothing":                  "",
		"a space":                  strings.Replace(good, ",", ", ", 1),
		"an unknown member":        strings.Replace(good, `"d":`, `"x":1,"d":`, 1),
		"another version":          strings.Replace(good, `"v":1`, `"v":2`, 1),
		"another order":            strings.Replace(good, `"from":380,"to":410`, `"to":410,"from":380`, 1),
		"a null list":              strings.Replace(good, good[strings.Index(good, `"d":`):], `"d":null}`, 1),
		"a bare issuer":            strings.Replace(good, "spiffe://", "", 1),
		"an audience that is none": strings.Replace(good, `"mesh"`, `"ME SH"`, 1),
		"no range":                 change(func(p *signed.Page) { p.From, p.To, p.Digests = 410, 410, nil }),
		"to behind at":             change(func(p *signed.Page) { p.At = 409 }),
		"out of order": change(func(p *signed.Page) {
			p.Digests[0], p.Digests[1] = p.Digests[1], p.Digests[0]
		}),
		"one revision twice":   change(func(p *signed.Page) { p.Digests[1].Revision = 381 }),
		"below the range":      change(func(p *signed.Page) { p.From = 381 }),
		"above the range":      change(func(p *signed.Page) { p.To = 409 }),
		"an unknown op":        change(func(p *signed.Page) { p.Digests[0].Op = "merge" }),
		"a deadline past 9999": change(func(p *signed.Page) { p.Digests[0].Deadline = 1 << 61 }),
		"a negative deadline":  change(func(p *signed.Page) { p.Digests[0].Deadline = -1 }),
		"a put without h":      strings.Replace(good, `"h":"`+hash("h1").String()+`",`, "", 1),
		"a put without m":      strings.Replace(good, `"m":"`+hash("m1").String()+`",`, "", 1),
		"a put without x":      strings.Replace(good, `"x":1780401600,`, "", 1),
		"a put without l":      strings.Replace(good, `,"l":86400`, "", 1),
		"a long lifetime":      strings.Replace(good, `"l":86400`, `"l":4294967296`, 1),
		"an end with m": strings.Replace(good, hash("h3").String()+`"`,
			hash("h3").String()+`","m":"`+hash("h3").String()+`"`, 1),
		"a drop with h":         strings.Replace(good, `"drop"`, `"drop","h":"`+hash("h3").String()+`"`, 1),
		"a digest with a space": strings.Replace(good, `{"u"`, `{ "u"`, 1),
		"a rid in lower case":   strings.Replace(good, rid(4).String(), strings.ToLower(rid(4).String()), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if bad == good {
				t.Fatal("the case changes nothing")
			}

			if _, err := signed.ParsePage([]byte(bad)); err == nil {
				t.Errorf("read %s", bad)
			}
		})
	}
}

func TestHeadFormat(t *testing.T) {
	h := &signed.Head{Format: 1, Issuer: alpha, Epoch: noon, Tip: 410, At: 412, Size: 99, Root: hash("root"),
		Keys: hash("keys"), IssuedAt: noon}
	golden(t, "head.json", h.Payload())

	back, err := signed.OwnDialect().ParseHead(h.Payload())
	if err != nil || *back != *h {
		t.Errorf("got %+v, %v", back, err)
	}

	good := string(h.Payload())
	for name, bad := range map[string]string{
		"nothing":           "",
		"a space":           good + " ",
		"an unknown member": strings.Replace(good, `"v":1`, `"v":1,"x":2`, 1),
		"no root":           strings.Replace(good, `"root":"`+hash("root").String()+`",`, "", 1),
		"a tip ahead of at": strings.Replace(good, `"tip":410`, `"tip":413`, 1),
		"a bare issuer":     strings.Replace(good, "spiffe://", "", 1),
		"a list":            "[]",
	} {
		if _, err := signed.OwnDialect().ParseHead([]byte(bad)); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}
