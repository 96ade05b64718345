package exported

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"promptfed/models/bundle"
	"promptfed/runtime/convert"
)

// layout describes the file names of one exporter: paths in the folder without the variant (fp16, quantized) and the
// extension .onnx, where * matches any characters except a slash. All files may lie in a folder onnx/.
type layout struct {
	origin      string
	image, text string // of the towers; equal if one file holds both
}

func (l layout) combined() bool { return l.image == l.text }

// layouts is the table of layouts: another exporter is one more entry. File names only select the files; their inputs
// and outputs are determined from the graphs.
var layouts = []layout{
	{"two towers", "image", "text"},
	{"transformers.js or optimum, split", "vision_model", "text_model"},
	{"immich", "visual/model", "textual/model"},
	{"clip-as-service or Roboflow", "visual", "textual"},
	{"CLIP-ONNX", "clip_visual", "clip_textual"},
	{"lakera", "clip_image_model*", "clip_text_model*"},
	{"Chinese-CLIP", "*.img", "*.txt"},
	{"MobileCLIP of ente", "mobileclip*_image*", "mobileclip*_text*"},
	{"WinML", "image-encoder", "text-encoder"},
	{"usls", "*-visual", "*-textual"},
	{"transformers.js or optimum, combined", "model", "model"},
	{"openai/CLIP", "clip", "clip"},
}

// export is an .onnx file of a folder.
type export struct {
	file    string // relative to the folder, with slashes
	stem    string // without onnx/, variant and extension, in lower case
	variant string // as in the name; "" for none
}

// variants matches the variant at the end of a name.
var variants = regexp.MustCompile(`(?i)[._-](fp32|float32|fp16|float16|q4f16|q4|q8|bnb4|int8|uint8|quantized|quant)$`)

// rank orders variants by precision: float32, float16, quantised.
func (e export) rank() int {
	switch strings.ToLower(e.variant) {
	case "", "fp32", "float32":
		return 0
	case "fp16", "float16":
		return 1
	}
	return 2
}

// maxListed limits the number of subfolders that are searched.
const maxListed = 64

// exportsIn lists the .onnx files of a folder and of its subfolders.
func exportsIn(dir string) []export {
	var out []export
	add := func(at string, list []os.DirEntry) {
		for _, e := range list {
			name := path.Join(at, e.Name())
			st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
			if !strings.HasSuffix(strings.ToLower(name), ".onnx") || err != nil || !st.Mode().IsRegular() {
				continue
			}
			x := export{file: name, stem: strings.TrimPrefix(name[:len(name)-len(".onnx")], "onnx/")}
			if v := variants.FindStringSubmatch(x.stem); v != nil {
				x.stem, x.variant = x.stem[:len(x.stem)-len(v[0])], v[1]
			}
			x.stem = strings.ToLower(x.stem)
			out = append(out, x)
		}
	}

	top, _ := os.ReadDir(dir)
	add("", top)
	listed := 0
	for _, e := range top {
		if st, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && st.IsDir() && listed < maxListed &&
			!strings.HasPrefix(e.Name(), ".") {
			list, _ := os.ReadDir(filepath.Join(dir, e.Name()))
			add(e.Name(), list)
			listed++
		}
	}

	return out
}

func matching(list []export, pattern string) []export {
	return slices.DeleteFunc(slices.Clone(list), func(e export) bool {
		ok, err := path.Match(pattern, e.stem)
		return err != nil || !ok
	})
}

// choose returns the only file of a role with the requested variant, or else with the highest precision. It is an error
// if there are two.
func choose(role string, list []export, variant string) (export, error) {
	best := slices.MinFunc(list, func(a, b export) int { return a.rank() - b.rank() }).rank()
	fit := slices.DeleteFunc(slices.Clone(list), func(e export) bool {
		return variant == "" && e.rank() != best || variant != "" && !strings.EqualFold(e.variant, variant)
	})
	switch {
	case len(fit) == 0:
		return export{}, fmt.Errorf("no %s of variant %q: there is %s; choose one of their variants, or none", role,
			variant, files(list))
	case len(fit) > 1:
		return export{}, fmt.Errorf("two files could be the %s, %s and %s: name one in %s, with "+
			"image=IMAGE.onnx,text=TEXT.onnx, or by its variant", role, fit[0].file, fit[1].file, bundle.ManifestFile)
	}

	return fit[0], nil
}

func files(list []export) string {
	out := convert.Slice(list[:min(len(list), 12)], func(e export) string { return e.file })
	return bundle.JoinOrNone(out)
}

// found holds the files of both towers of a folder.
type found struct {
	origin      string
	image, text export
	others      []export // of other variants
}

// findTowers looks for both towers in a folder. Two files take precedence over one file; if two layouts fit, the error
// names both.
func findTowers(dir, variant string) (towers found, err error) {
	list := exportsIn(dir)
	var fit []layout
	var half string
	for _, l := range layouts {
		switch image, text := matching(list, l.image), matching(list, l.text); {
		case len(image) > 0 && len(text) > 0:
			fit = append(fit, l)
		case len(image) > 0:
			half = fmt.Sprintf("%s is the image tower (%s), and there is no text tower %s.onnx", image[0].file,
				l.origin, l.text)
		case len(text) > 0:
			half = fmt.Sprintf("%s is the text tower (%s), and there is no image tower %s.onnx", text[0].file,
				l.origin, l.image)
		}
	}

	if len(fit) > 0 && !fit[0].combined() { // layouts of two files come first in the table
		fit = slices.DeleteFunc(fit, layout.combined)
	}

	two := pairs(dir)
	switch {
	case len(fit) == 0 && len(two) > 0:
		return towers, fmt.Errorf("%s holds a folder for each tower: name both in its place, %s", dir,
			strings.Join(two[:min(len(two), 3)], " or "))
	case len(fit) == 0 && half != "":
		return towers, fmt.Errorf("%s: put it there, or name a folder for each tower", half)
	case len(fit) == 0:
		return towers, fmt.Errorf("none of its .onnx files (%s) has a name of a known exporter: name the file in "+
			"%s as \"model\" (both towers), or as \"image\": {\"file\": ...} and \"text\": {\"file\": ...}",
			files(list), bundle.ManifestFile)
	case len(fit) > 1:
		return towers,
			fmt.Errorf("its files have the names of two exporters, %s and %s (%s): name the files to use in %s",
				fit[0].origin, fit[1].origin, files(list), bundle.ManifestFile)
	}

	l := fit[0]
	towers.origin = l.origin
	image, text := matching(list, l.image), matching(list, l.text)
	if towers.image, err = choose("image tower", image, variant); err != nil {
		return towers, err
	}

	if towers.text, err = choose("text tower", text, variant); err != nil {
		return towers, err
	}

	towers.others = slices.DeleteFunc(slices.Concat(image, text), func(e export) bool {
		return e == towers.image || e == towers.text
	})
	return towers, nil
}

// findTower looks for one tower in its own folder: under any name of a layout, or as the only file.
func findTower(dir string, image bool, variant string) (tower export, origin string, err error) {
	role := "text tower"
	if image {
		role = "image tower"
	}

	switch st, err := os.Stat(dir); {
	case err != nil:
		return tower, "", fmt.Errorf("the %s: %w", role, err)
	case !st.IsDir():
		return tower, "", fmt.Errorf("%s is neither a folder nor an .onnx file: name one that holds the %s", dir, role)
	}

	list := exportsIn(dir)
	for _, l := range layouts {
		own := l.text
		if image {
			own = l.image
		}
		if fit := matching(list, own); len(fit) > 0 && !l.combined() {
			tower, err = choose(role, fit, variant)
			return tower, l.origin, err
		}
	}

	if fit := matching(list, "model"); len(fit) > 0 {
		list = fit
	}

	if len(list) == 0 {
		return tower, "", fmt.Errorf("%s holds no .onnx file: name the folder of the %s, or its file", dir, role)
	}

	tower, err = choose(role, list, variant)
	return tower, "a folder for each tower, as in fastembed", err
}

// looksExported reports whether a folder has files of a known layout.
func looksExported(dir string) bool {
	list := exportsIn(dir)
	return slices.ContainsFunc(layouts, func(l layout) bool {
		return len(matching(list, l.image))+len(matching(list, l.text)) > 0
	})
}

// Words in the names of folders that hold one tower, as in fastembed.
var (
	imageFolder = regexp.MustCompile(`(?i)(^|[._-])(image|vision|visual|img)([._-]|$)`)
	textFolder  = regexp.MustCompile(`(?i)(^|[._-])(text|textual|txt)([._-]|$)`)
)

// pairs returns the specifications of pairs of folders, one for each tower, whose names differ only in the word for the
// tower; the folders are in dir, directly or as in a download cache.
func pairs(dir string) []string {
	dir = filepath.Clean(dir)
	images, texts := map[string]string{}, map[string]string{}
	for _, pattern := range []string{"*", "*/snapshots/*"} {
		list, _ := fs.Glob(os.DirFS(dir), pattern)
		for _, found := range list[:min(len(list), maxListed)] {
			sub := filepath.Join(dir, filepath.FromSlash(found))
			name, _, _ := strings.Cut(found, "/")
			image, text := imageFolder.ReplaceAllString(name, "$1*$3"), textFolder.ReplaceAllString(name, "$1*$3")
			if (image == name) == (text == name) || !holdsONNX(sub) {
				continue
			}

			if image != name {
				images[image] = sub
			} else {
				texts[text] = sub
			}
		}
	}

	var out []string
	for key, image := range images {
		if text := texts[key]; text != "" {
			out = append(out, fmt.Sprintf("image=%s,text=%s", image, text))
		}
	}

	slices.Sort(out)
	return out
}

func holdsONNX(dir string) bool {
	list, _ := os.ReadDir(dir)
	return slices.ContainsFunc(list, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".onnx") })
}
