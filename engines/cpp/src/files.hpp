// Reading and writing whole files, and the user's cache folder. Python: mrcfa/machine/files.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

namespace mrcfa {

/// The content of a file, or its first `most` bytes; an Error in Python's words if it cannot be
/// read.
std::string content_of(const std::filesystem::path& path,
                       std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

/// Writes a file under another name first and renames it then, so that the name only ever stands
/// for a complete file. An Error in Python's words if that fails.
void write_whole(const std::filesystem::path& path, std::string_view content);

/// The user's folder for caches, whose contents can be made again; empty if there is no home.
std::filesystem::path cache_folder();

}  // namespace mrcfa
