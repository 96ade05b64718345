// Command shot photographs a page in a headless Chromium: a PNG of the window, or of the whole page where HEIGHT is 0.
// A page is HTML, SVG or a picture.
//
//	go run ./tools/lab/page/shot FILE[#SECTION]|http://... OUT.png WIDTH HEIGHT light|dark
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"promptfed/tools/lab/page/browser"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shot:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var colours string
	var width, height int64
	if len(args) == 5 {
		fmt.Sscan(strings.Join(args[2:], " "), &width, &height, &colours)
	}

	if width < 1 || height < 0 || colours != "light" && colours != "dark" {
		return fmt.Errorf("usage: shot FILE[#SECTION]|http://... OUT.png WIDTH HEIGHT light|dark")
	}

	address, out := args[0], args[1]
	if !strings.HasPrefix(address, "http://") {
		file, err := filepath.Abs(address)
		if err != nil {
			return err
		}
		address = "file://" + filepath.ToSlash(file)
	}

	path, err := browser.Find()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tab, stop, err := browser.Start(ctx, path)
	if err != nil {
		return err
	}
	defer stop()

	take, window := chromedp.CaptureScreenshot(), height
	if height == 0 {
		take, window = chromedp.FullScreenshot(100), 900
	}

	if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}}); err != nil {
		return err
	}

	// Navigate waits for the page's scripts; the browser paints the canvas in a frame after them
	if err := chromedp.Do(tab, chromedp.EmulateViewport(width, window), chromedp.Navigate(address),
		chromedp.Sleep(300*time.Millisecond)); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}

	png, err := chromedp.Run(tab, take)
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}

	return os.WriteFile(out, png, 0o644)
}
