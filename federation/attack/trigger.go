package attack

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"math"

	"promptfed/federation/data"
)

// Triggered returns an example with the trigger of a backdoor and the target class as its label. The trigger is a white
// square in the lower right corner of the largest square in the middle of the image, which is the part that an image
// tower sees after resizing and the centre crop. Random crops of augmented views may cut it off.
func (c Config) Triggered(e data.Example, decode data.Decoder) data.Example {
	out := e
	how := fmt.Sprintf("with a white square of %g", c.Trigger)
	out.ID, out.Stamp, out.Label = e.ID+" "+how, e.Stamp+" "+how, c.Target
	out.Path, out.Bytes, out.ContentHash = "", nil, data.ContentHash{}
	out.Load = func() (image.Image, error) {
		img, err := e.Image(decode)
		if err != nil {
			return nil, err
		}
		return stamped(img, c.Trigger), nil
	}

	return out
}

// stamped returns a copy of an image with the trigger.
func stamped(img image.Image, size float64) image.Image {
	b := img.Bounds()
	side := min(b.Dx(), b.Dy())
	end := image.Pt(b.Min.X+(b.Dx()-side)/2+side, b.Min.Y+(b.Dy()-side)/2+side)
	n := int(math.Round(size * float64(side)))
	out := image.NewNRGBA(b)
	draw.Draw(out, b, img, b.Min, draw.Src)
	square := image.Rectangle{Min: end.Sub(image.Pt(n, n)), Max: end}
	draw.Draw(out, square, image.NewUniform(color.White), image.Point{}, draw.Src)
	return out
}
