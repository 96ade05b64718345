package experiment

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// duplicatedFolder returns a folder with train and val, each with 10 images of each of two classes. The first three
// images of val/cat are the first three of train/cat.
func duplicatedFolder(t *testing.T) Config {
	var names []string
	for _, dir := range []string{"train/cat/", "train/dog/", "val/cat/", "val/dog/"} {
		for i := range 10 {
			names = append(names, dir+string(rune('a'+i))+".png")
		}
	}
	c := smallConfig("promptfl")
	c.Data.Set, c.Data.Root = "folder", datatest.Tree(t, names...)
	c.Runtime.Cache = t.TempDir()
	for _, name := range []string{"a.png", "b.png", "c.png"} {
		b, err := os.ReadFile(filepath.Join(c.Data.Root, "train/cat", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(c.Data.Root, "val/cat", name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func info(t *testing.T, c Config) DataInfo {
	t.Helper()
	b := dataOf(t, c)
	return b.Info
}

// The description of the data, and the effect of data.duplicates: val is the test split, and three of its images are
// also training images.
func TestDataInfo(t *testing.T) {
	c := duplicatedFolder(t)
	got := info(t, c)
	if got.Layout != "SPLIT/CLASS/" || got.Classes != 2 || len(got.Domains) != 0 || len(got.Splits) != 2 ||
		got.Duplicates.TrainTest != 3 || got.Duplicates.Dropped != 0 || got.Splits[0].Images != 20 ||
		got.Splits[1].Images != 20 {
		t.Errorf("%+v", got)
	}
	text := strings.Join(append(got.Lines(), got.Notes...), "\n")
	goldentest.Contains(t, text, "data: folder, SPLIT/CLASS/: 2 classes",
		"train 20 images (10 of each class), test 20 images (10 of each class)",
		"val is used as the test split", "3 training images are also test images (such as train/cat/a.png and "+
			"val/cat/a.png)", "data.duplicates: keep")
	b, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(b), `"train_in_test":3`) {
		t.Errorf("%s, %v", b, err)
	}
	c.Data.Duplicates = data.DuplicatesDrop
	if got := info(t, c); got.Duplicates.Dropped != 3 || got.Splits[0].Images != 17 || got.Splits[0].Least != 7 ||
		got.Splits[1].Images != 20 {
		t.Errorf("drop: %+v", got)
	}
	c.Data.Duplicates = data.DuplicatesError
	refuses(t, c, "3 training images", "val/cat/a.png", "data.duplicates")
	c.Data.Duplicates = "ask"
	refuses(t, c, "data.duplicates", "keep")
}

// The description covers evaluation sets, and the server's own images that are not used.
func TestDataInfoOfOtherSets(t *testing.T) {
	c := duplicatedFolder(t)
	c.Eval.Sets, c.Eval.SetsRoot = []string{"folder"}, datatest.Tree(t, "train/cow/1.png", "val/cow/1.png",
		"val/cow/2.png")
	c.Synthetic.Set, c.Synthetic.Root = "folder", duplicatedFolder(t).Data.Root
	b := taskOf(t, c)
	text := strings.Join(append(b.Info.Lines(), b.Info.Notes...), "\n")
	goldentest.Contains(t, text, "also tested on folder (2 images of 1 class)", "folder: "+c.Eval.SetsRoot+
		": there is no folder of test images",
		"synthetic: the server trains on 20 images; 20 of val and test are not used")
}

// After the partition of a pool, equal images are counted in a client's own train and test data, and in the training
// images of two clients.
func TestDuplicatesOfClients(t *testing.T) {
	c := duplicatedFolder(t)
	c.Data.Split = "pooled"
	var seen SharedImages
	for seed := range 8 {
		c.Seed = uint64(seed)
		b := dataOf(t, c)
		want := sharedByHand(b)
		if b.Info.Clients != want {
			t.Errorf("%+v, want %+v", b.Info.Clients, want)
		}
		seen.OwnTest, seen.Across = seen.OwnTest+want.OwnTest, seen.Across+want.Across
	}
	if seen.OwnTest == 0 || seen.Across == 0 {
		t.Errorf("eight partitions had %+v", seen)
	}
	c.Data.Duplicates = data.DuplicatesDrop
	if got := info(t, c); got.Clients != (SharedImages{}) || got.Splits[0].Images != 37 {
		t.Errorf("drop: %+v", got)
	}
}

// sharedByHand counts the equal images of twins by their names.
func sharedByHand(b *Data) SharedImages {
	var out SharedImages
	image := func(id string) string { return strings.Replace(id, "val/cat/", "train/cat/", 1) }
	twin := func(id string) bool {
		return slices.Contains([]string{"train/cat/a.png", "train/cat/b.png", "train/cat/c.png"}, image(id))
	}
	clients := map[string]map[int]bool{} // clients that train on an image
	for k, p := range b.Parts {
		for _, i := range p.Train {
			if id := b.Set.Pool[i].ID; twin(id) {
				if clients[image(id)] == nil {
					clients[image(id)] = map[int]bool{}
				}
				clients[image(id)][k] = true
			}
		}
	}
	for k, p := range b.Parts {
		for _, i := range p.Test {
			if id := b.Set.Pool[i].ID; twin(id) && clients[image(id)][k] {
				out.OwnTest++
			}
		}
	}
	for _, list := range clients {
		if len(list) > 1 {
			out.Across++
		}
	}
	return out
}

// The digest of data covers its images with their splits and classes. It is equal for a copy with other times and
// names. It differs for another split, and after a change of one byte of an image at equal size.
func TestDataDigest(t *testing.T) {
	var list []string
	for _, class := range []string{"cat", "dog"} {
		for i := range 10 {
			list = append(list, fmt.Sprintf("%s/%d.png", class, i))
		}
	}
	digest := func(root, split string) string {
		c := Defaults()
		c.Data.Set, c.Data.Root, c.Data.Split, c.Runtime.Cache = "folder", root, split, t.TempDir()
		c.Partition.Clients = 2
		b := dataOf(t, c)
		return b.Digest
	}
	root, copied := datatest.Tree(t, list...), t.TempDir()
	goldentest.NoError(t, os.CopyFS(copied, os.DirFS(root)))
	goldentest.NoError(t, os.Chtimes(filepath.Join(copied, "cat", "3.png"), time.Unix(1, 0), time.Unix(1, 0)))
	first := digest(root, "given")
	if len(first) != 64 || digest(copied, "given") != first || digest(root, "pooled") == first {
		t.Errorf("%s, of a copy %s", first, digest(copied, "given"))
	}
	// Image 0 remains the first of its class; a split by order would notice a change.
	goldentest.NoError(t, os.Rename(filepath.Join(copied, "cat", "0.png"), filepath.Join(copied, "cat", "00.png")))
	if digest(copied, "pooled") != digest(root, "pooled") {
		t.Error("the name of a file is part of the digest")
	}
	text := filetest.Read(t, copied, "cat", "3.png")
	text[len(text)-1] ^= 1
	filetest.Write(t, filepath.Join(copied, "cat", "3.png"), text)
	if digest(copied, "pooled") == digest(root, "pooled") {
		t.Error("another byte in an image changes nothing")
	}
}
