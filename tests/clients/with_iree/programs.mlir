// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs of test_iree_hip.py, of one size each.

// A convolution of an image with 3 by 3 pixels, by the matrix unit.
func.func @convolution(%x: tensor<2x18x18x16xf16>, %w: tensor<3x3x16x32xf16>) -> tensor<2x16x16x32xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x16x16x32xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x16x16x32xf32>) -> tensor<2x16x16x32xf32>
  %out = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<2x18x18x16xf16>, tensor<3x3x16x32xf16>)
    outs(%init : tensor<2x16x16x32xf32>) -> tensor<2x16x16x32xf32>
  return %out : tensor<2x16x16x32xf32>
}

func.func @softmax(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %out = linalg.softmax dimension(1) ins(%x : tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %out : tensor<?x?xf32>
}

// Attention of two heads, with a mask and a scale of 1/8.
func.func @attention(%q: tensor<2x64x64xf16>, %k: tensor<2x96x64xf16>, %v: tensor<2x96x64xf16>,
                     %mask: tensor<2x64x96xi1>) -> tensor<2x64x64xf16> {
  %scale = arith.constant 0.125 : f16
  %empty = tensor.empty() : tensor<2x64x64xf16>
  %out = iree_linalg_ext.attention <{indexing_maps = [
      affine_map<(b, m, d, n, e) -> (b, m, d)>, affine_map<(b, m, d, n, e) -> (b, n, d)>,
      affine_map<(b, m, d, n, e) -> (b, n, e)>, affine_map<(b, m, d, n, e) -> ()>,
      affine_map<(b, m, d, n, e) -> (b, m, n)>, affine_map<(b, m, d, n, e) -> (b, m, e)>]}>
    ins(%q, %k, %v, %scale, %mask : tensor<2x64x64xf16>, tensor<2x96x64xf16>, tensor<2x96x64xf16>, f16,
        tensor<2x64x96xi1>) outs(%empty : tensor<2x64x64xf16>) {
    ^bb0(%score: f32):
      iree_linalg_ext.yield %score : f32
  } -> tensor<2x64x64xf16>
  return %out : tensor<2x64x64xf16>
}

func.func @sort(%x: tensor<5x60xi32>) -> tensor<5x60xi32> {
  %out = iree_linalg_ext.sort dimension(1) outs(%x : tensor<5x60xi32>) {
    ^bb0(%a: i32, %b: i32):
      %less = arith.cmpi slt, %a, %b : i32
      iree_linalg_ext.yield %less : i1
  } -> tensor<5x60xi32>
  return %out : tensor<5x60xi32>
}

// Sums of all numbers of a row so far.
func.func @scan(%x: tensor<5x60xi32>) -> tensor<5x60xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<5x60xi32>
  %row = tensor.empty() : tensor<5xi32>
  %init = linalg.fill ins(%zero : i32) outs(%row : tensor<5xi32>) -> tensor<5xi32>
  %out:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<5x60xi32>)
      outs(%empty, %init : tensor<5x60xi32>, tensor<5xi32>) {
    ^bb0(%a: i32, %b: i32):
      %sum = arith.addi %a, %b : i32
      iree_linalg_ext.yield %sum : i32
  } -> tensor<5x60xi32>, tensor<5xi32>
  return %out#0 : tensor<5x60xi32>
}

// Adds rows to those whose numbers are given; they may be so twice.
func.func @scatter(%x: tensor<8x32xi32>, %rows: tensor<20x32xi32>, %at: tensor<20x1xi32>) -> tensor<8x32xi32> {
  %out = iree_linalg_ext.scatter dimension_map = [0] unique_indices(false)
      ins(%rows, %at : tensor<20x32xi32>, tensor<20x1xi32>) outs(%x : tensor<8x32xi32>) {
    ^bb0(%new: i32, %old: i32):
      %sum = arith.addi %new, %old : i32
      iree_linalg_ext.yield %sum : i32
  } -> tensor<8x32xi32>
  return %out : tensor<8x32xi32>
}

// How many times n is halved, or tripled plus 1 if it is odd, until it is 1. The host reads each n back.
func.func @steps(%n: tensor<i32>) -> tensor<i32> {
  %zero = arith.constant dense<0> : tensor<i32>
  %one = arith.constant 1 : i32
  %three = arith.constant 3 : i32
  %out:2 = scf.while (%at = %n, %count = %zero) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>) {
    %value = tensor.extract %at[] : tensor<i32>
    %more = arith.cmpi ne, %value, %one : i32
    scf.condition(%more) %at, %count : tensor<i32>, tensor<i32>
  } do {
  ^bb0(%at: tensor<i32>, %count: tensor<i32>):
    %next:2 = linalg.generic {
        indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
        outs(%at, %count : tensor<i32>, tensor<i32>) {
      ^bb0(%a: i32, %c: i32):
        %bit = arith.andi %a, %one : i32
        %odd = arith.cmpi eq, %bit, %one : i32
        %tripled = arith.muli %a, %three : i32
        %up = arith.addi %tripled, %one : i32
        %down = arith.shrsi %a, %one : i32
        %b = arith.select %odd, %up, %down : i32
        %d = arith.addi %c, %one : i32
        linalg.yield %b, %d : i32, i32
    } -> (tensor<i32>, tensor<i32>)
    scf.yield %next#0, %next#1 : tensor<i32>, tensor<i32>
  }
  return %out#1 : tensor<i32>
}
