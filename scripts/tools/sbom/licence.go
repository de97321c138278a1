package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// allowed are the licences that a program under Apache-2.0 may contain. MPL-2.0 asks for the source of
// its own files only, which the module proxy has.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unicode-DFS-2016"}

// minCoverage is how much of a file must be text of known licences, in percent. Copyright lines and
// names are the rest.
const minCoverage = 75

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-._](apache|mit|bsd|md|txt|code).*)?$`)

func moduleCache() (string, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMODCACHE: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// licence returns the SPDX expression of the licences in the root folder of a module. It fails if one
// is not allowed, or if there is none.
func licence(cache string, m component) (string, error) {
	if m.path == goToolchain {
		return "BSD-3-Clause", nil // go.dev/LICENSE
	}
	path, err := module.EscapePath(m.path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.version)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, filepath.FromSlash(path)+"@"+version)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.path, err)
	}
	var found []string
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		scan := licensecheck.Scan(text)
		if scan.Percent < minCoverage {
			return "", fmt.Errorf("%s %s: %s: %.0f %% of the text is a known licence", m.path, m.version, e.Name(), scan.Percent)
		}
		for _, match := range scan.Match {
			if !slices.Contains(allowed, match.ID) {
				return "", fmt.Errorf("%s %s: %s: licence %s is not allowed (allowed: %s)", m.path, m.version, e.Name(), match.ID, strings.Join(allowed, ", "))
			}
			found = append(found, match.ID)
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%s %s: no licence found", m.path, m.version)
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}
