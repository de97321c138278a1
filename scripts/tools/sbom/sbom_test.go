package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
)

// TestBill writes the SBOM of the program beside this one.
func TestBill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, "../image").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var first []byte
	for range 2 {
		var out, errs bytes.Buffer
		if code := run([]string{path}, &out, &errs); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		if !strings.Contains(out.String(), " modules (") {
			t.Errorf("stdout %q lacks the licences", &out)
		}
		data, err := os.ReadFile(path + ".spdx.json")
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, data) {
			t.Error("the same binary gives two files")
		}
		first = data
	}
	doc, err := spdxjson.Read(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	licences := map[string]string{}
	for _, p := range doc.Packages {
		licences[p.PackageName] = p.PackageLicenseConcluded
	}
	for name, want := range map[string]string{goToolchain: "BSD-3-Clause", "github.com/google/go-containerregistry": "Apache-2.0", "google.golang.org/protobuf": "BSD-3-Clause", "image": "Apache-2.0"} {
		if licences[name] != want {
			t.Errorf("%s: licence %q, want %q", name, licences[name], want)
		}
	}
	if len(doc.Relationships) != len(doc.Packages) {
		t.Errorf("%d relationships of %d packages", len(doc.Relationships), len(doc.Packages))
	}
}

func TestLicence(t *testing.T) {
	mit, err := os.ReadFile("testdata/MIT.txt")
	if err != nil {
		t.Fatal(err)
	}
	gpl := "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the expression, or the error
	}{
		"one":       {map[string]string{"LICENSE": string(mit)}, "MIT"},
		"spellings": {map[string]string{"Licence.md": string(mit), "readme": "nothing"}, "MIT"},
		"none":      {map[string]string{"README": string(mit)}, "no licence found"},
		"unknown":   {map[string]string{"LICENSE": "All rights reserved. Ask the author."}, "of the text is a known licence"},
		"forbidden": {map[string]string{"LICENSE": string(mit), "COPYING": gpl}, "is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			dir := filepath.Join(cache, "example.com", "!upper@v1.0.0")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for f, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := licence(cache, component{path: "example.com/Upper", version: "v1.0.0"})
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "name the binaries"},
		{[]string{text}, 1, text},
		{[]string{text + "s"}, 1, "no such file"},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, stderr %q", c.args, code, &errs)
		}
	}
}
