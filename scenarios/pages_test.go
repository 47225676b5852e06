package scenarios

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	pageName = regexp.MustCompile(`[\w./-]*\w\.md\b`)
	pageLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
)

// otherPages are pages of other projects, and names that stand for any page.
var otherPages = []string{"SKILL.md", "skill.md", "AGENTS.md", "DESIGN.md"}

// pageURL is a page elsewhere.
var pageURL = regexp.MustCompile(`https://[^\s"]+`)

// A page that a comment or another page names is in the repository: in the same folder, at
// the top, or in docs. Links between pages lead to files.
func TestPagesExist(t *testing.T) {
	root := os.DirFS("..")
	exists := func(name string) bool {
		_, err := fs.Stat(root, path.Clean(name))
		return err == nil
	}

	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".git")):
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".go", ".md", ".yaml", ".cedar"}, path.Ext(name)):
			return nil
		}

		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}

		dir := path.Dir(name)
		for _, page := range pageName.FindAllString(pageURL.ReplaceAllString(string(text), ""), -1) {
			if !slices.ContainsFunc([]string{path.Join(dir, page), page, path.Join("docs", page),
				path.Join("docs/spec", page)}, exists) &&
				!slices.Contains(otherPages, page) && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s names %s, which is not in the repository", name, page)
			}
		}

		if path.Ext(name) != ".md" {
			return nil
		}

		for _, link := range pageLink.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(link[1], "://") && !exists(path.Join(dir, link[1])) {
				t.Errorf("%s links to %s, which is not there", name, link[1])
			}
		}

		return nil
	})
	must(t, err)
}

var (
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// The tests that docs/threats.md names for its rows are in the repository.
func TestPagesNameTests(t *testing.T) {
	root := os.DirFS("..")
	exist := map[string]bool{}

	err := fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}

		text, err := fs.ReadFile(root, name)
		for _, f := range testFunc.FindAllSubmatch(text, -1) {
			exist[string(f[1])] = true
		}

		return err
	})
	must(t, err)

	text, err := fs.ReadFile(root, "docs/threats.md")
	must(t, err)

	for _, name := range testName.FindAllString(string(text), -1) {
		if !exist[name] {
			t.Errorf("docs/threats.md names %s, which is no test", name)
		}
	}
}

var (
	functionName = regexp.MustCompile("`([a-z_/0-9]+\\.go)(?::(\\w+))?`")
	anyFunc      = regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)`)
)

// The source files that a page names are in the repository, and the functions that it names
// as `file.go:function` are in those files. A name without a folder is an example.
func TestPagesNameFunctions(t *testing.T) {
	root := os.DirFS("..")

	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}

	named := 0

	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := fs.ReadFile(root, page)
		must(t, err)

		for _, name := range functionName.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(name[1], "/") {
				continue
			}

			named++

			source, err := fs.ReadFile(root, name[1])
			if err != nil {
				t.Errorf("%s names %s, which is not in the repository", page, name[1])
				continue
			}

			if name[2] != "" && !slices.ContainsFunc(anyFunc.FindAllSubmatch(source, -1), func(found [][]byte) bool {
				return string(found[1]) == name[2]
			}) {
				t.Errorf("%s names %s, which %s doesn't have", page, name[2], name[1])
			}
		}
	}

	if named < 20 {
		t.Errorf("only %d source files are named: the pattern finds too little", named)
	}
}
